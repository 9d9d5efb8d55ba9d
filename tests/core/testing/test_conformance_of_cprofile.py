"""The conformance kit on a backend that was written from the page "Write a backend" alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuprof.testing import BackendConformance
from support.cprofile_backend import CProfileBackend

ENTRY = "[gpuprof.backends]\ncprofile = support.cprofile_backend:CProfileBackend\n"


@pytest.mark.exhaustive
class TestCProfile(BackendConformance):
    """What any backend must do."""

    name = "cprofile"
    backend = CProfileBackend

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _installed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        site = tmp_path_factory.mktemp("site")
        metadata = site / "cprofile_backend-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: cprofile-backend\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(ENTRY)
        paths = [str(site), str(Path(__file__).parents[2])]
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(site))
            inherited = os.environ.get("PYTHONPATH", "")
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [*paths, inherited])))
            yield
        sys.path_importer_cache.pop(str(site), None)

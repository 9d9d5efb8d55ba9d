"""The conformance kit on two backends for cProfile.

One, which wraps, was written from the page "Write a backend" alone; the other one starts and stops
it on the job's thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuprof_testing import BackendConformance
from support.cprofile_backend import CProfileBackend
from support.thread_profiler import ThreadProfiler

ENTRIES = """[gpuprof.backends]
cprofile = support.cprofile_backend:CProfileBackend
thread_profiler = support.thread_profiler:ThreadProfiler
"""


class Installed(BackendConformance):
    """A backend of `support`, as if installed."""

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
        (metadata / "entry_points.txt").write_text(ENTRIES)
        paths = [str(site), str(Path(__file__).parents[1])]
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(site))
            inherited = os.environ.get("PYTHONPATH", "")
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [*paths, inherited])))
            yield
        sys.path_importer_cache.pop(str(site), None)


@pytest.mark.exhaustive
class TestCProfile(Installed):
    """What any backend must do."""


@pytest.mark.exhaustive
class TestThreadProfiler(Installed):
    """The same, in windows."""

    name = "thread_profiler"
    backend = ThreadProfiler
    options = {"builtins": False}

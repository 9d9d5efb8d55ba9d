"""The stand-in for AMD's tool, on PATH."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parents[1] / "support" / "rocprof_stand_in"

Release = Callable[[str], None]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Puts a release of the stand-in on PATH, for this process and its children."""
    from gpuprof_rocprof_sys import _tool

    def put(number: str) -> None:
        monkeypatch.setenv(
            "PATH",
            os.pathsep.join(
                [str(STAND_IN / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
        )
        monkeypatch.setenv("ROCPROF_SYS_STAND_IN", number)
        _tool.find.cache_clear()

    yield put
    _tool.find.cache_clear()

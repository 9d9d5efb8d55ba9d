"""The check of a worker's start, with the stand-in for AMD's tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gpuprof._config.load import load
from gpuprof._doctor import start_up
from gpuprof._plan.planner import Planner


@pytest.fixture(autouse=True)
def _on_path(release: Callable[[str], None]) -> None:
    release("1.6")


@pytest.mark.parametrize("launcher", ["python", "module", "sample"])
def test_doctor_starts_a_worker_under_every_launcher(tmp_path: Path, launcher: str) -> None:
    """Also under those that run nothing but scripts."""
    section = {"launcher": launcher}
    config = load({"backend": "rocprof_sys", "worker_groups": "all", "rocprof_sys": section})
    planner = Planner(config, "run", str(tmp_path))
    tool = planner.check_tool()
    check = start_up.check(planner, planner.worker("A", 0, tool=tool), tool, None)
    assert check.ok, check.detail

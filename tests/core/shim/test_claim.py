"""Which processes have a worker's identity."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from gpuprof._shim.claim import claim


@pytest.mark.parametrize(
    ("twins", "expected"), [(True, ["1", "2", None]), (False, ["1", None, None])]
)
def test_processes_that_were_started_together_have_it_both(
    tmp_path: Path, twins: bool, expected: list[str | None]
) -> None:
    """Ray starts two for a first task, and either may get it; a later process is a child."""
    row = {"group": "A", "rank": 0, "run": "run", "output_dir": str(tmp_path)}
    with ExitStack() as stack:
        together = [
            stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE)) for _ in range(2)
        ]
        assert expected == [
            claim(row, pid, twins=twins)
            for pid in [*(process.pid for process in together), os.getpid()]
        ]
    # they have ended: a restart
    assert str(len(set(expected))) == claim(row, os.getpid(), twins=twins)

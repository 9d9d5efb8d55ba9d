"""What a tool has left running and that does nothing any more is not waited for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gpuprof import _config, _shim, _stalled
from gpuprof._plan import Planner
from gpuprof._settling import settle_node
from gpuprof._stalled import stalled

Leave = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def leave(tmp_path: Path) -> Iterator[Leave]:
    """Starts a shell with a program as a tool's agent: by its temporary directory it is known."""
    with ExitStack() as stack:

        def start(program: str) -> subprocess.Popen[bytes]:
            command = ["sh", "-c", program]
            environment = {**os.environ, "TMPDIR": str(tmp_path)}
            agent = stack.enter_context(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            stack.callback(agent.kill)
            assert agent.stdout is not None
            agent.stdout.readline()
            return agent

        yield start


def looks(tmp_path: Path, times: int) -> list[bool]:
    """What is said, look after look."""
    return [stalled(str(tmp_path), str(tmp_path / "note")) for _ in range(times)]


def test_who_waits_for_ever_has_stalled(leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time without any work, and not at the first look: that only sees how much it was by then."""
    leave("echo; read line")
    assert [False] * 3 == looks(tmp_path, 3)
    monkeypatch.setattr(_stalled, "PATIENCE", 0.0)
    assert True is looks(tmp_path, 100)[-1]


def test_who_works_has_not(leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the patience."""
    monkeypatch.setattr(_stalled, "PATIENCE", 0.0)
    leave("echo; while :; do :; done")
    assert [False] * 100 == looks(tmp_path, 100)


def test_the_run_goes_on_without_the_stalled(leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, and the worker's files are settled as of any that has ended."""
    monkeypatch.setattr(_stalled, "PATIENCE", 0.0)
    planner = Planner(_config.load({"backend": "nsight", "worker_groups": ["A"], "steps": [0]}), "run", str(tmp_path))
    private = tmp_path / "run" / _shim.node_name() / ".gpuprof"
    private.mkdir(parents=True)
    agent = leave("echo; read line")
    tool = {"state": "ended", "exit_code": 0, "scratch": str(tmp_path), "tool": "", "version": None}
    (private / "A-0.start-1.tool").write_text(json.dumps(tool))
    plan = {("A", 0): planner.worker("A", 0)}
    states = [start.tool and start.tool["state"] for _ in range(100) for start in settle_node(planner, plan).starts]
    assert ("finishing", "ended") == (states[0], states[-1])
    assert agent.wait() < 0

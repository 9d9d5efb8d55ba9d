"""A stalled tool is not waited for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts.close import make_receipt
from gpuprof._artifacts.collect import Collection, ThisNode
from gpuprof._artifacts.records import read_node
from gpuprof._artifacts.settle import settle_node, stalled
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof._shim.node import node_name
from gpuprof._shim.processes import process_start
from gpuprof._shim.scratch import STALLED
from support.run_files import own_scratch, status

Leave = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def leave(tmp_path: Path) -> Iterator[Leave]:
    """Starts a shell with a program as a tool's agent: by its temporary directory it is known."""
    (tmp_path / "scratch").mkdir(exist_ok=True)
    with ExitStack() as stack:

        def start(program: str) -> subprocess.Popen[bytes]:
            command = ["sh", "-c", program]
            environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
            agent = stack.enter_context(
                subprocess.Popen(
                    command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            stack.callback(agent.kill)
            assert agent.stdout is not None
            agent.stdout.readline()
            return agent

        yield start


def looks(tmp_path: Path, times: int) -> list[bool]:
    """What is said, look after look."""
    return [stalled(str(tmp_path / "scratch"), str(tmp_path / "note")) for _ in range(times)]


def test_who_waits_for_ever_has_stalled(
    leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `PATIENCE` seconds without work; the first look only notes the work so far."""
    leave("echo; read line")
    assert [False] * 3 == looks(tmp_path, 3)
    monkeypatch.setattr("gpuprof._artifacts.settle.PATIENCE", 0.0)
    assert True is looks(tmp_path, 100)[-1]
    (tmp_path / "note").write_text(json.dumps({"ticks": {}, "since": 0.0}))
    assert [False] == looks(tmp_path, 1)  # it has run since then


def test_who_works_has_not(leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the patience."""
    monkeypatch.setattr("gpuprof._artifacts.settle.PATIENCE", 0.0)
    leave("echo; while :; do :; done")
    assert [False] * 100 == looks(tmp_path, 100)


class Run:
    """A run whose worker's shim is gone, and of which the tool's agent lives."""

    def __init__(self, tmp_path: Path, **of_tool: Any) -> None:
        self._planner = Planner(
            load({"backend": "nsight", "worker_groups": ["A"], "steps": [0]}), "run", str(tmp_path)
        )
        self._private = tmp_path / "run" / node_name() / ".gpuprof"
        self._private.mkdir(parents=True)
        own_scratch(tmp_path / "scratch", self._private.parent)
        tool = status("running", scratch=str(tmp_path / "scratch"), marks=True, **of_tool)
        (self._private / "A-0.start-1.tool").write_text(json.dumps(tool))

    def start_worker(self, mark: str = "") -> None:
        """One that has ended meanwhile."""
        (self._private / "A-0.start-1.target").write_text(mark)

    def faults(self) -> tuple[str, ...]:
        """What the receipt says that is wrong."""
        directory = str(self._private.parents[1])
        home = Collection(ThisNode(), directory, directory, enabled=False)
        return make_receipt(self._planner, [], [read_node(directory)], home).faults

    def settle(self, give_up: bool = False) -> str:
        """What becomes of the tool."""
        (start,) = settle_node(
            self._planner, {("A", 0): self._planner.worker("A", 0)}, give_up
        ).starts
        assert start.tool is not None
        return str(start.tool["state"])


def test_the_run_goes_on_without_the_stalled(
    leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, and the worker's files are settled as of any that has ended."""
    monkeypatch.setattr("gpuprof._artifacts.settle.PATIENCE", 0.0)
    run = Run(tmp_path)
    run.start_worker()
    agent = leave("echo; read line")
    states = [run.settle() for _ in range(100)]
    assert ("finishing", "ended") == (states[0], states[-1])
    assert agent.wait(30) < 0


def test_a_tool_whose_worker_has_ended_is_not_running(
    leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nsys itself waits for ever once its launcher was killed; the receipt says who ended it."""
    monkeypatch.setattr("gpuprof._artifacts.settle.PATIENCE", 0.0)
    agent = leave("echo; read line")
    run = Run(tmp_path, pid=agent.pid, start=process_start(agent.pid))
    assert "running" == run.settle()
    run.start_worker(subprocess.check_output(["cat", "/proc/self/stat"], text=True))
    states = [run.settle() for _ in range(100)]
    assert ("finishing", "ended") == (states[0], states[-1])
    assert (f"A-0: {STALLED}",) == run.faults()


def test_who_works_is_ended_where_nobody_waits_any_longer(leave: Leave, tmp_path: Path) -> None:
    """At the first look, whatever the patience."""
    run = Run(tmp_path)
    run.start_worker()
    agent = leave("echo; read line")
    assert "ended" == run.settle(give_up=True)
    assert agent.wait(30) < 0


def test_what_a_worker_has_left_that_never_started_is_not_waited_for(
    leave: Leave, tmp_path: Path
) -> None:
    """Where Ray has ended the shim: an agent that goes on alone would stay for ever."""
    run = Run(tmp_path)
    agent = leave("echo; read line")
    assert "ended" == run.settle()
    assert agent.wait(30) < 0

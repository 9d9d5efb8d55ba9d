"""A worker is settled once, by the backend, and nothing that could not be saved is removed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._artifacts.settle import captured_windows, find_damage, settle_node
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof._shim.node import node_name
from gpuprof._shim.scratch import _prefix
from gpuprof.backend.types import Window, Worker
from support.run_files import own_scratch, session_file, status, window_entry

SOURCE = """
import attrs, gpuprof
from gpuprof.backend import Collected
calls = []

@attrs.frozen
class Options:
    fail: bool = False
    wrong: bool = False

pids = []

class Saver:
    Options = Options
    def __init__(self, options):
        self.fail = options.fail
        self.wrong = options.wrong
    @gpuprof.backend.hookimpl
    def start_capture(self):
        pass
    @gpuprof.backend.hookimpl
    def collect_files(self, worker, windows, files, ended, scratch):
        pids.append(worker.pid)
        if self.wrong:
            return ["/saved"]
        calls.append(([window.number for window in windows], files, ended, scratch))
        if self.fail:
            return Collected({1: ["/saved/1"]}, "no room for window 2")
        return Collected({window.number: [f"/saved/{window.number}"] for window in windows})
    @gpuprof.backend.hookimpl
    def check_report(self, path):
        open(path).close()
"""
Settle = Callable[..., NodeRecord]


@pytest.fixture
def module(install: Callable[..., str]) -> str:
    """The installed backend."""
    return install(SOURCE, saver="Saver")


@pytest.fixture
def settle(module: str, tmp_path: Path) -> Settle:
    """Settles a run of which one worker has ended: it had windows 1 and 2, and one that failed."""
    directory = tmp_path / "run" / node_name()
    (directory / ".gpuprof").mkdir(parents=True)
    own_scratch(tmp_path / "scratch", directory)
    session = session_file(
        window_entry(1, 1),
        window_entry(2, 2, files=["/named/2"]),
        window_entry(3, 3, error="OSError: no"),
    )
    (directory / "A-0.start-1.json").write_text(json.dumps(session))
    tool = status(scratch=str(tmp_path / "scratch"), tool="/bin/tool")
    (directory / ".gpuprof" / "A-0.start-1.tool").write_text(json.dumps(tool))

    def settle(again: bool = False, **settings: Any) -> NodeRecord:
        config = load({"backend": "saver", "worker_groups": ["A"], "steps": ["1:4"], **settings})
        planner = Planner(config, "run", str(tmp_path))
        return settle_node(planner, {("A", 0): planner.worker("A", 0)}, again=again)

    return settle


def test_files_are_named_once(settle: Settle, module: str, tmp_path: Path) -> None:
    """The backend gets the windows and the files already named; then the scratch directory goes."""
    (start,) = settle().starts
    assert start.settled is not None
    assert ({"1": ["/saved/1"], "2": ["/saved/2"]}, []) == (
        start.settled["files"],
        start.settled["problems"],
    )
    assert ["step-1", "step-2"] == [window["label"] for window in start.settled["windows"]]
    (again,) = settle().starts
    assert start.settled == again.settled
    assert [([1, 2], {2: ["/named/2"]}, True, str(tmp_path / "scratch"))] == sys.modules[
        module
    ].calls
    assert not (tmp_path / "scratch").exists()


def test_what_cannot_be_saved_is_kept(settle: Settle, tmp_path: Path) -> None:
    """The reason and the saved files are recorded, and the scratch directory stays."""
    (start,) = settle(saver={"fail": True}).starts
    assert start.settled is not None
    assert ({"1": ["/saved/1"]}, ["no room for window 2"]) == (
        start.settled["files"],
        start.settled["problems"],
    )
    assert (tmp_path / "scratch").exists()


def test_what_was_saved_before_is_not_forgotten(settle: Settle) -> None:
    """Also if the backend fails when it tries the rest again."""
    settle(saver={"fail": True})
    (start,) = settle(again=True, saver={"wrong": True}).starts
    assert {"1": ["/saved/1"]} == (start.settled and start.settled["files"])


def test_a_report_that_is_just_moved_home_is_not_damaged(module: str, tmp_path: Path) -> None:
    """It was there when the node's files were listed."""
    planner = Planner(load({"backend": "saver", "worker_groups": ["A"]}), "run", str(tmp_path))
    record = NodeRecord("node", str(tmp_path), (), {"A-0.step-1.txt": 6})
    assert {} == find_damage(planner, record).damaged


def test_what_is_no_list_is_named(settle: Settle, tmp_path: Path) -> None:
    """A list instead of a mapping is a problem of the receipt, with the distribution's name."""
    (start,) = settle(saver={"wrong": True}).starts
    assert start.settled is not None
    (problem,) = start.settled["problems"]
    assert re.fullmatch(
        r"collect_files of plugin_\d+ returned \['/saved'\]; expected a gpuprof.backend.Collected, "
        "with lists of paths by window, or None",
        problem,
    )
    assert (tmp_path / "scratch").exists()


@pytest.mark.parametrize(("session", "known"), [(True, "7"), (False, "42")])
def test_the_process_of_the_worker_is_known(
    settle: Settle, module: str, tmp_path: Path, session: bool, known: str
) -> None:
    """Its session says the id; of a worker without one, the mark that its shim left."""
    directory = tmp_path / "run" / node_name()
    stat = f"42 (python) R {' '.join(['0'] * 30)}"
    (directory / ".gpuprof" / "A-0.start-1.target").write_text(stat)
    if not session:
        (directory / "A-0.start-1.json").unlink()
    settle(steps=None)
    assert [known] == sys.modules[module].pids


def test_a_process_that_left_no_mark(settle: Settle, module: str, tmp_path: Path) -> None:
    """The id is then 0, as documented, and no placeholder."""
    (tmp_path / "run" / node_name() / "A-0.start-1.json").unlink()
    settle(steps=None)
    assert ["0"] == sys.modules[module].pids


def test_a_worker_that_nothing_wraps(settle: Settle, module: str, tmp_path: Path) -> None:
    """A program that the worker has started writes after it: its files are named, too."""
    (tmp_path / "run" / node_name() / ".gpuprof" / "A-0.start-1.tool").unlink()
    settle()
    assert [([1, 2], {2: ["/named/2"]}, True, "")] == sys.modules[module].calls


def test_a_full_disk_loses_no_settled_files(settle: Settle, tmp_path: Path) -> None:
    """The result is repeated in memory."""
    (tmp_path / "run" / node_name() / ".gpuprof" / "A-0.start-1.settled").mkdir()
    (start,) = settle().starts
    assert {"1": ["/saved/1"], "2": ["/saved/2"]} == (start.settled and start.settled["files"])


def test_what_earlier_runs_have_left_beside_it_goes_too(settle: Settle, tmp_path: Path) -> None:
    """Of processes that are gone, and only what their tool called disposable."""
    disposable, kept = (tmp_path / f"{_prefix()}{2**22 + number}-1" for number in (1, 2))
    for directory, name in ((disposable, "status"), (kept, "report")):
        own_scratch(directory, tmp_path / "earlier")
        (directory / name).write_text("half")
    settle()
    assert (False, True) == (disposable.exists(), kept.exists())


@pytest.mark.parametrize(
    ("changes", "began", "expected"),
    [
        ({}, True, ["lifetime"]),
        ({"discrete": True}, True, []),
        ({"windows": (Window(1, 3, 4),)}, True, []),
        ({}, False, []),
    ],
    ids=["whole life", "discrete", "a step", "never began"],
)
def test_the_windows_of_a_worker_without_gpuprof(
    changes: dict[str, Any], began: bool, expected: list[str]
) -> None:
    """Its whole life, if that was planned: without a session nobody opens a step or a scope."""
    worker = Worker(
        "run", "A", 0, "node", "1", "/out", **{"windows": (Window(1, None, None),), **changes}
    )
    start = Start("A", 0, "1", session=None, tool=None, began=began)
    assert expected == [window.label for window in captured_windows(worker, start)]

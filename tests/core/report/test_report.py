"""What is printed at the end: which trees, in which form, and which rows of the receipt."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from gpuprof._artifacts.formats import FileState
from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import Receipt, ReceiptRow, count
from gpuprof._artifacts.records import NodeRecord, Start, read_node
from gpuprof._artifacts.rows import _holds_more, receipt_rows
from gpuprof._cli import main
from gpuprof._config.load import load
from gpuprof._launch.run import _explain
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._report.printing import chosen, print_trees, progress
from gpuprof._report.trees import Tree, tree_tables
from gpuprof._session.file import SessionFile
from gpuprof._shim.processes import process_start
from gpuprof.backend.types import Window, Worker
from gpuprof.ray._ending import all_trees
from gpuprof_timing import Timing
from support import plugins, run_files
from support.manual_clock import Clock
from support.run_files import manifest, run_file, session_file, window_entry


def row(rank: int, state: str = "complete") -> ReceiptRow:
    size, cause = (1024, Reason.NONE) if state == "complete" else (0, Reason.NEVER_OPENED)
    return ReceiptRow(
        f"A-{rank}", "node", "step-3", f"/out/run/node/A-{rank}.rep", size, state, cause
    )  # type: ignore[arg-type]


def test_a_small_receipt_in_full() -> None:
    """Every expected file, its size and state, and where it lies."""
    receipt = Receipt((row(0), row(1, "missing")), "/out/run")
    expected = """\
worker  window  file             size  state
------  ------  ------------  -------  ------------------------------------
A-0     step-3  node/A-0.rep  1.0 KiB  complete
A-1     step-3  node/A-1.rep      0 B  missing: the window was never opened
1 of 2 reports complete, 1.0 KiB in total, in /out/run"""
    assert (expected, False) == (receipt.table(), receipt.complete)


def test_a_file_of_several_windows_counts_once() -> None:
    """A file for several windows is one report; its size counts once."""
    receipt = Receipt(
        (row(0), attrs.evolve(row(0), window="step-5", cause=Reason.WHOLE_PROCESS)),
        "/out/run",
    )
    assert "1 of 1 report complete, 1.0 KiB in total" in receipt.table()
    assert "complete: one file for the whole process" in receipt.table()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("F", "complete", "P"), ("F", "complete", "P")], (1, 1)),
        ([("F", "complete", "P"), (None, "missing", "P")], (1, 0)),
        ([(None, "missing", "P"), (None, "missing", "P")], (1, 0)),
        ([(None, "missing", "P"), (None, "missing", "Q")], (2, 0)),
        ([("F", "missing", "P"), ("F", "missing", "P")], (1, 0)),
        ([("F", "complete", "P"), ("G", "complete", "P")], (2, 2)),
        ([("F", "complete", "P"), (None, "missing", "")], (2, 1)),
        ([(None, "missing", ""), (None, "missing", "")], (2, 0)),
    ],
)
def test_reports_are_counted_as_the_plan_counts_them(
    rows: list[tuple[str | None, FileState, str]], expected: tuple[int, int]
) -> None:
    """Windows that share a file are one report, also if it is missing or lacks a window."""
    receipt = Receipt(
        tuple(
            ReceiptRow("A-0", "node", f"step-{step}", file, 0, state, planned=planned)
            for step, (file, state, planned) in enumerate(rows)
        ),
        "/out/run",
    )
    assert expected == count(receipt.to_dict()["rows"])


def test_who_shares_the_planned_file(tmp_path: Path) -> None:
    """A worker that never started lacks one report for three windows in one file."""
    config = load(
        {
            "backend": "rocprof_sys",
            "worker_groups": ["A"],
            "steps": [1, 2, 3],
            "output_dir": str(tmp_path),
        }
    )
    planner = Planner(config, "run", str(tmp_path))
    rows = receipt_rows(planner.worker("A", 0), [], planner.manager("A"))
    assert (3, (1, 0)) == (len(rows), count(Receipt(tuple(rows), "/out/run").to_dict()["rows"]))


def test_a_process_that_never_became_the_worker_captured_nothing(tmp_path: Path) -> None:
    """Ray ends one of two duplicate workers; it lacks no report if the other has it."""
    planner = Planner(
        load({"backend": "nsight", "worker_groups": ["A"], "output_dir": str(tmp_path)}),
        "run",
        str(tmp_path),
    )
    private = tmp_path / "run" / "node" / ".gpuprof"
    private.mkdir(parents=True)
    status = run_files.status(marks=True)
    (private / "A-0.start-1.tool").write_text(json.dumps(status))

    def rows() -> list[str]:
        record = read_node(str(tmp_path / "run"), "node")
        return [
            row.reason
            for row in receipt_rows(planner.worker("A", 0), [record], planner.manager("A"))
        ]

    assert ["the profiler never started the worker"] == rows()
    (private / "A-0.start-2.tool").write_text(json.dumps(status))
    (private / "A-0.start-2.target").touch()
    assert [Reason.LEFT_NO_FILE.value] == rows()
    (private / "A-0.start-1.tool").write_text(json.dumps({**status, "marks": False}))
    assert [
        Reason.LEFT_NO_FILE.value
    ] * 2 == rows()  # of a command that marks nothing it is not known


@pytest.mark.parametrize(
    ("template", "file", "expected"),
    [
        (None, "A-0.lifetime.nsys-rep", "one file for the whole process"),
        (None, "A-0.step-3.nsys-rep", ""),
        ("mine", "mine.nsys-rep", ""),
    ],
)
def test_a_file_that_holds_more_than_its_window(
    template: str | None, file: str, expected: str
) -> None:
    """Its name tells; one that is the same for every window does not."""
    worker = Worker(
        "run", "A", 0, "node", 1, "/out/run/node", (Window(1, 3, 4),), False, file_name=template
    )
    assert expected == _holds_more(worker, worker.windows[0], file).value


def test_a_large_receipt_shows_what_is_missing() -> None:
    """Beyond twenty rows only failures and the total, unless all are asked for."""
    receipt = Receipt((*(row(rank) for rank in range(29)), row(29, "missing")), "/out/run")
    assert ["A-29"] == re.findall(r"^A-\d+", receipt.table(), re.MULTILINE)
    assert 30 == len(re.findall(r"^A-\d+", receipt.table(all_rows=True), re.MULTILINE))
    assert "29 of 30 reports complete" in receipt.table()


def test_faults_are_part_of_the_receipt() -> None:
    """What went wrong beside missing files is said below the table."""
    assert (
        "fault: A-0: did not answer"
        in Receipt((row(0),), "/out/run", ("A-0: did not answer",)).table()
    )


@pytest.mark.parametrize(
    ("which", "expected"),
    [("ends", ["A-0", "A-3", "B-1"]), ("all", ["A-0", "A-1", "A-3", "B-1"]), ("none", [])],
)
def test_whose_trees_are_printed(which: str, expected: list[str]) -> None:
    """Each group's first and last rank, all, or none."""
    trees = {
        (group, rank): Tree(Timing(f"{group}-{rank}"))
        for group, rank in [("A", 0), ("A", 1), ("A", 3), ("B", 1)]
    }
    assert expected == [tree.timing.name for tree in chosen(trees, which)]  # type: ignore[arg-type]


def test_how_many_trees_are_left_out_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """With the command that shows them."""
    trees = {("A", rank): Tree(Timing(f"A-{rank}")) for rank in range(5)}
    with caplog.at_level("INFO"):
        print_trees(trees, Tree(Timing("Runner")), "ends", directory="/runs/one")
    expected = "3 more workers have trees; all, merged by group: gpuprof report /runs/one"
    assert expected == caplog.messages[-1]


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        (["A-1"], ["A-0", "A-1 (slow) profile", "B-1"]),
        (["A-0"], ["A-0 (slow) profile", "A-3", "B-1"]),
        (["A-10", "B-1"], ["A-0", "A-3", "B-1 (slow) profile"]),
    ],
)
def test_a_slow_worker_has_its_tree_printed(slow: list[str], expected: list[str]) -> None:
    """In the place of the last one, beside the first."""
    trees = {
        (group, rank): Tree(Timing(f"{group}-{rank}"))
        for group, rank in [("A", 0), ("A", 1), ("A", 3), ("B", 1)]
    }
    assert expected == [tree.timing.name for tree in chosen(trees, "ends", slow)]


PRINT = """
import sys
{setup}
from gpuprof.ray import Profiler
with Profiler() as profiler:
    with profiler.timing.add_time("train"):
        pass
"""


def test_trees_are_printed_on_stderr_in_the_known_form() -> None:
    """Without any logging set up: `[time][pid] <title> tree view:` and the tree."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT.format(setup="")], capture_output=True, text=True, check=True
    )
    form = (
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]\[\d+\] "
        r"Runner \(the driver\) profile tree view:\n"
        r"main_loop: 0\.\d{4}\n  train: 0\.\d{4}(, \(other\): 0\.\d{4})?\n"
    )
    assert re.fullmatch(form, done.stderr), done.stderr
    assert "" == done.stdout


def test_trees_go_where_the_program_logs() -> None:
    """A program with handlers of its own gets the trees there, and only there."""
    setup = (
        "import logging; logging.basicConfig(level='INFO', format='mine: %(name)s: "
        "%(message)s', stream=sys.stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", PRINT.format(setup=setup)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("mine: gpuprof: Runner (the driver) profile tree view:\n")
    assert "" == done.stderr


class StandInTerminal(io.StringIO):
    """Stands in for a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar of what has come home, in the end all of it."""
    terminal = StandInTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress(200) as bar:
        bar(50)
        bar(150)
    shares = re.findall(r"collecting reports .*?(\d+)%", terminal.getvalue())
    assert ["0", "25", "100"] == list(dict.fromkeys(shares))


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log file has no use for it."""
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with progress(200) as bar:
        bar(200)
    assert "" == file.getvalue()


def test_a_shim_that_was_killed_does_not_keep_anyone_waiting(tmp_path: Path) -> None:
    """The profiler of a start whose shim could not say so has ended when its process is gone."""
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    private = tmp_path / os.uname().nodename / ".gpuprof"
    private.mkdir(parents=True)
    alive = run_files.status("running", pid=os.getpid(), start=process_start(os.getpid()))
    gone = run_files.status("running", pid=int(dead.stdout), start="1")
    (private / "A-0.start-1.tool").write_text(json.dumps(gone))
    (private / "A-1.start-1.tool").write_text(json.dumps(alive))
    assert {0: True, 1: False} == {
        start.rank: start.ended for start in read_node(str(tmp_path)).starts
    }


@pytest.mark.parametrize(
    ("session", "files", "expected"),
    [
        (
            session_file(step=None),
            [],
            (
                "the window was never opened; no step has ended; add `import gpuprof`, and `with "
                "gpuprof.step(n):` around each step"
            ),
        ),
        (session_file(step=2), [], "the window was never opened; its last step was 2"),
        (
            None,
            ["A-0.child-7.json"],
            (
                f"{Reason.NEVER_USED.value}; its child processes did: put gpuprof run in "
                "front of them"
            ),
        ),
        (None, [], Reason.NEVER_USED.value),
    ],
)
def test_a_program_that_counts_its_steps_learns_why_none_was_captured(
    session: SessionFile | None, files: list[str], expected: str
) -> None:
    """None was entered, they ended too soon, or processes that it has started are who count."""
    start = Start("A", 0, "1", session, None)
    record = NodeRecord("node", "/out/run/node", (start,), dict.fromkeys(files, 1))
    missing = attrs.evolve(
        row(0, "missing"), cause=Reason.NEVER_OPENED if session else Reason.NEVER_USED
    )
    wrapped = PlannedWorker(
        Worker("r", "A", 0, "node", "1", "/out/run/node", (), False, False, None),
        True,
        "selected",
        ("profiler", "{interpreter}"),
    )
    planner: Any = SimpleNamespace(capability="wraps")
    assert expected == _explain(missing, record, planner, wrapped).reason


def test_a_process_without_times_has_advice_and_no_table() -> None:
    """A header with nothing below it does not say why."""
    said = tree_tables([Tree(Timing("A-0 profile"))])
    assert said.startswith("A-0 profile\nNothing was timed.")
    assert "GPUPROF_TIMING" in said


def test_a_process_without_times_beside_others_has_no_advice() -> None:
    """It may only have started them, or run functions for them."""
    worked = Timing("work-0 profile")
    with worked.add_time("load"):
        pass
    said = tree_tables([Tree(Timing("Worker-0 profile")), Tree(worked)])
    assert said.startswith("work-0 profile\n")
    assert "\n\nNothing was timed in Worker-0 profile.\n" in said


def test_trees_of_several_runs_are_not_merged(tmp_path: Path) -> None:
    """Trees of several runs stay apart; restarts and children count as processes."""
    for run, rank in (("r1", 0), ("r1", 1), ("r2", 0)):
        session = {"name": f"W-{rank}", "group": "W", "run": run, "timing": Timing().to_dict()}
        (tmp_path / f"{run}-{rank}.json").write_text(json.dumps(session))
    done = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert ["W of r1, 2 processes", "W of r2"] == [
        line for line in done.stdout.splitlines() if line.startswith("W")
    ]


READER = """
import attrs
read = []
from gpuprof.backend import RangeTimes, hookimpl, option

@attrs.frozen
class Options:
    unit: str = option("what its ranges are called", default="step")

class Reader:
    Options = Options

    def __init__(self, options):
        self.options = options

    @hookimpl
    def read_ranges(self, path):
        read.append(path)
        if not path.endswith(".rep"):
            return None
        return [
            RangeTimes(self.options.unit, (2_000_000,)),
            RangeTimes("forward", (1_000_000,), parents=(self.options.unit,)),
            RangeTimes("forward", (500_000,)),
        ]
"""


def report_ranges(*words: str) -> list[dict[str, Any]]:
    """What `gpuprof report --nvtx --json` prints of each window."""
    done = CliRunner().invoke(main, ["report", "--nvtx", "--json", *words])
    assert 0 == done.exit_code, done.output
    windows: list[dict[str, Any]] = json.loads(done.stdout)["windows"]
    return windows


def test_reports_of_several_runs_are_read_each_with_its_own_settings(
    tmp_path: Path, install: Callable[..., str]
) -> None:
    """No file's ranges are added to another's; files outside a run use the defaults."""
    install(READER, reader="Reader")
    for run, unit in (("r1", "epoch"), ("r2", "round"), ("r3", "epoch")):
        (tmp_path / run / "node").mkdir(parents=True)
        about = run_file(run, config={"backend": "reader", "reader": {"unit": unit}})
        (tmp_path / run / "run.json").write_text(json.dumps(about))
        (tmp_path / run / "node" / "W-0.rep").touch()
    (tmp_path / "alone.rep").touch()
    paths = [str(tmp_path / name) for name in ("r1", "r2", "r3", "alone.rep")]
    found = [(window["run"], window["ranges"][0]["name"]) for window in report_ranges(*paths)]
    assert [(None, "step"), ("r1", "epoch"), ("r2", "round"), ("r3", "epoch")] == found


@pytest.fixture
def captured(tmp_path: Path, install: Callable[..., str]) -> Path:
    """A directory with two runs: windows of 0.01 s at step 3, of two ranks of A and one of B."""
    install(READER, reader="Reader")
    for run in ("r1", "r2"):
        node = tmp_path / run / "node"
        (node / ".gpuprof").mkdir(parents=True)
        about = run_file(run, config={"backend": "reader"})
        (tmp_path / run / "run.json").write_text(json.dumps(about))
        for group, rank in (("A", 0), ("A", 1), ("B", 0)):
            window = window_entry(files=[f"/was/{group}-{rank}.step-3.rep"], seconds=0.01)
            session = session_file(window, run=run, group=group, rank=rank)
            (node / f"{group}-{rank}.start-1.json").write_text(json.dumps(session))
            (node / f"{group}-{rank}.step-3.rep").touch()
    return tmp_path


def test_runs_and_groups_stay_apart(captured: Path) -> None:
    """A range's share is of the time of its own windows, over the ranks of its group."""
    windows = report_ranges(str(captured))
    assert [("r1", "A"), ("r1", "B"), ("r2", "A"), ("r2", "B")] == [
        (window["run"], window["group"]) for window in windows
    ]
    assert [0, 1] == windows[0]["ranks"]
    assert [0.02, 0.01] == [window["seconds"] for window in windows[:2]]
    step = windows[0]["ranges"][0]
    assert [2_000_000] * 2 == step["durations"]
    assert 0.2 == pytest.approx(step["share"])


def test_ranks_stay_apart_if_asked(captured: Path) -> None:
    """`--by rank` makes a table for each."""
    windows = report_ranges("--by", "rank", str(captured / "r1"))
    assert [("A", [0]), ("A", [1]), ("B", [0])] == [
        (window["group"], window["ranks"]) for window in windows
    ]
    assert [0.01] * 3 == [window["seconds"] for window in windows]


def test_ranges_are_printed_inside_their_parents(captured: Path) -> None:
    """A name at two places has two rows; the heading names group, window, ranks and time."""
    done = CliRunner().invoke(main, ["report", "--nvtx", str(captured / "r1")])
    lines = done.stdout.splitlines()
    assert "A, step-3, ranks 0, 1: 0.020 s" == lines[0]
    assert ["step", "  forward", "forward"] == [line[:9].rstrip() for line in lines[3:6]]
    assert ["20.0 %", "10.0 %", "5.0 %"] == [
        re.findall(r"[\d.]+ %", line)[0] for line in lines[3:6]
    ]
    assert "" == lines[6]
    assert "B, step-3, rank 0: 0.010 s" == lines[7]


def test_the_manifest_knows_what_the_nodes_kept(captured: Path) -> None:
    """A report that only its node's private files could name is found by the manifest."""
    run = captured / "r1"
    session = json.loads((run / "node" / "B-0.start-1.json").read_text())
    session["windows"][0]["files"] = None
    (run / "node" / "B-0.start-1.json").write_text(json.dumps(session))
    entry = {"node": "node", "file": "/was/B-0.step-3.rep", "size": 1, "sha256": ""}
    about = {"group": "B", "rank": 0, "incarnation": "1", "window": "step-3", "seconds": 0.01}
    receipt = Receipt((), "/was").to_dict()
    content = manifest("r1", receipt, files=[{**entry, **about}])
    (run / "manifest.json").write_text(json.dumps(content))
    assert ["A", "B"] == [window["group"] for window in report_ranges(str(run))]


def test_a_report_of_several_windows(captured: Path) -> None:
    """Its time is that of all of them, and its table names each."""
    file = captured / "r1" / "node" / "A-0.start-1.json"
    report = ["/was/A-0.step-3.rep"]
    windows = [window_entry(number, 2 + number, files=report, seconds=0.01) for number in (1, 2)]
    file.write_text(json.dumps(session_file(*windows, run="r1")))
    first = report_ranges(str(captured / "r1" / "node" / "A-0.step-3.rep"))[0]
    assert "step-3, step-4" == first["window"]
    assert 0.02 == first["seconds"]


def test_our_own_files_are_no_reports(captured: Path) -> None:
    """A reader of JSON is never asked about the files that gpuprof writes."""
    (captured / "r1" / "node" / "Runner.json").write_text("{}")
    (captured / "r1" / "node" / "A-0.child-7.json").write_text("{}")
    (captured / "r1" / "node" / ".gpuprof" / "A-0.start-1.tool").write_text("{}")
    (captured / "r1" / "node" / "A-0.step-3.json").write_text("{}")
    report_ranges(str(captured / "r1"))
    read = {Path(path).name for path in plugins.newest().read}
    assert {"A-0.step-3.json", "A-0.step-3.rep", "A-1.step-3.rep", "B-0.step-3.rep"} == read


def test_ranks_of_trees_cannot_be_kept_apart(tmp_path: Path) -> None:
    """`--by` is for ranges, and says so."""
    refused = CliRunner().invoke(main, ["report", "--by", "rank", str(tmp_path)])
    assert 2 == refused.exit_code
    assert "--by: 'rank' needs --nvtx" in refused.output


def test_the_tree_of_another_release_does_not_end_the_job(caplog: pytest.LogCaptureFixture) -> None:
    """An unreadable tree of another release is named; the others are printed."""
    timing = Timing("t", clock=iter(range(9)).__next__)
    with timing.add_time("train"):
        pass
    trees = (timing.to_dict(), {**timing.to_dict(), "version": 2})
    starts = tuple(
        Start("A", rank, "1", session_file(timing=tree), None) for rank, tree in enumerate(trees)
    )
    assert [("A", 0)] == list(all_trees({}, {}, [NodeRecord("node", "/out/run/node", starts, {})]))
    assert [
        "A-1: cannot read its timing tree: timing tree of version 2: this gpuprof-timing reads 1"
    ] == caplog.messages


@pytest.mark.parametrize(
    "damage", [lambda text: text[:40], lambda text: text.replace('"version": 1', '"version": 2')]
)
def test_a_broken_tree_is_named(tmp_path: Path, damage: Callable[[str], str]) -> None:
    """The others are merged without it, which has to be said: sums would be too small in silence.

    What is no tree is no loss.
    """
    for other in ("manifest.json", "run.json", ".gpuprof/W-0.start-1.tool.json"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_text("{")
    whole = json.dumps({"name": "W-0", "group": "W", "timing": Timing("W-0").to_dict()})
    (tmp_path / "W-0.start-1.json").write_text(whole)
    broken = tmp_path / "W-1.start-1.json"
    broken.write_text(damage(whole))
    done = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert (1, ["W"]) == (done.exit_code, done.stdout.splitlines()[:1])
    said = f"{broken}: cannot be read, so its tree is left out: "
    assert (said, 1) == (done.stderr[: len(said)], len(done.stderr.splitlines()))
    (tmp_path / "W-0.start-1.json").unlink()
    nothing = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert (2, True, True) == (
        nothing.exit_code,
        said in nothing.stderr,
        "no timing tree found" in nothing.stderr,
    )


def entry(calls: dict[str, int], apart: dict[str, int], **changes: Any) -> dict[str, Any]:
    """The times of a process, a second for each call, with two steps left out."""
    clock = Clock()
    timings = []
    for called in (calls, apart):
        timing = Timing("t", clock=clock)
        for key, times in called.items():
            for _ in range(times):
                with timing.add_time(key):
                    clock.advance(1)
        timings.append(timing.to_dict())
    return {
        "timing": timings[0],
        "while_profiling": timings[1] if apart else None,
        "steps_left_out": 2 if apart else 0,
        "whole_life": False,
        **changes,
    }


def test_a_tree_says_what_is_left_out() -> None:
    """How many steps, and how long they took, in place of their times."""
    tree = Tree.read(entry({"train": 3}, {"train": 9}), "A-0 profile")
    assert (
        "A-0 profile tree view:\ntrain: 3.0000\n(while profiling): 2 steps, 9.0 s left out"
        == tree.text()
    )


def test_places_that_only_steps_left_out_have_are_shown() -> None:
    """As in a job that loads a model, and then captures each of its few steps."""
    tree = Tree.read(entry({"load": 1}, {"train": 4}), "A-0 profile")
    assert (
        "A-0 profile tree view:\nload: 1.0000\n"
        "(while profiling): 2 steps, 4.0 s left out; some scopes ran only there:\n"
        "A-0 profile tree view:\ntrain: 4.0000" == tree.text()
    )


def test_a_run_whose_steps_are_all_captured_shows_their_tree() -> None:
    """There is no other one."""
    tree = Tree.read(entry({}, {"train": 4}), "A-0 profile")
    assert (
        "(while profiling): 2 steps, 4.0 s left out; no other step ran:\n"
        "A-0 profile tree view:\ntrain: 4.0000" == tree.text()
    )


def test_a_process_that_was_captured_for_its_whole_life_says_so() -> None:
    """Nothing is left out of its tree: there would be nothing left."""
    alone = Tree.read(entry({"train": 3}, {}, whole_life=True), "A-0 profile")
    other = Tree.read(entry({"train": 3}, {}), "A-1 profile")
    said = "captured from start to end; times include profiler overhead"
    assert alone.text().endswith(f"\n(while profiling): the process was {said}")
    merged = Tree.merge([alone, other], "A, 2 processes")
    assert merged.text().endswith(f"\n(while profiling): 1 of 2 processes was {said}")


def test_the_slowest_process_is_the_slowest_without_profiling(tmp_path: Path) -> None:
    """A-1 has waited for A-0 while its windows opened; A-0 is the one that is slow."""
    (tmp_path / "node").mkdir()
    for rank, (calls, apart) in enumerate(
        [({"train": 5}, {"train": 1}), ({"train": 4}, {"train": 9})]
    ):
        session = session_file(name=f"A-{rank}", rank=rank, **entry(calls, apart))
        (tmp_path / "node" / f"A-{rank}.start-1.json").write_text(json.dumps(session))
    shown = CliRunner().invoke(main, ["report", str(tmp_path)]).stdout
    assert "A-0 (5.0000)" in shown
    assert "\n(while profiling): 2 steps, 9.0 s left out\n" in shown
    data = json.loads(CliRunner().invoke(main, ["report", "--json", str(tmp_path)]).stdout)
    assert [("A, 2 processes", 9.0), ("A, 2 processes (while profiling)", 10.0)] == [
        (name, Timing.from_dict(tree)["train"]) for name, tree in data.items()
    ]

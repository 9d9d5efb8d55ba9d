"""The receipt names a cause for every state that a worker, its profiler and its node can leave."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts.close import make_receipt
from gpuprof._artifacts.collect import Collection, ThisNode
from gpuprof._artifacts.formats import FileState
from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import Receipt, ReceiptRow
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._artifacts.rows import receipt_rows
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof._session.file import SessionFile
from gpuprof._shim.files import ToolStatus
from gpuprof.backend.types import Tool
from support import journal, run_files
from support.run_files import session_file as session
from support.run_files import settled
from support.run_files import window_entry as window

FILE = "A-0.step-3.txt"
ENDED = run_files.status()
FAILED = run_files.status(exit_code=3)
RUNNING = run_files.status("running", scratch="/tmp/scratch")
UNWRAPPED = run_files.status("unwrapped", reason="no nsys here")
WITHOUT = "the worker ran without the profiler: no nsys here"
UNSELECTED = run_files.status("unselected")
PLACE = "; the unfinished report is in /tmp/scratch"
Rows = Callable[..., list[ReceiptRow]]


def start(
    session: SessionFile | None, tool: ToolStatus | None, incarnation: str = "1", **more: Any
) -> Start:
    """One start of the only worker."""
    return Start("A", 0, incarnation, session, tool, **more)


@pytest.fixture
def rows(install: Callable[..., str]) -> Rows:
    """The rows of the only worker, from its starts and the files that are there."""
    install(inspect.getsource(journal), journal="Journal")

    def rows(
        *starts: Start,
        there: tuple[str, ...] = (),
        size: int = 6,
        opened: tuple[int, ...] = (),
        **settings: Any,
    ) -> list[ReceiptRow]:
        config = load({"backend": "journal", "worker_groups": ["A"], "steps": [3], **settings})
        planner = Planner(config, "run", "/out")
        planned = planner.worker("A", 0, tool=Tool("/usr/bin/env", "1.0"))
        sizes = dict.fromkeys(there, size)
        records = [NodeRecord("node", "/out/run/node", starts, sizes)] if starts else []
        return receipt_rows(planned, records, planner.manager("A"), opened)

    return rows


def told(rows: list[ReceiptRow]) -> list[tuple[str, str, str, str]]:
    """Window, file, state and reason of each."""
    return [(row.window, os.path.basename(row.file or ""), row.state, row.reason) for row in rows]


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (start(session(), None), Reason.NOT_BEHIND_PROFILER.value),
        (start(session(behind_profiler=True), None), Reason.RUN_DELETED.value),
        (start(None, UNWRAPPED), WITHOUT),
        (
            start(session(window()), UNWRAPPED),
            WITHOUT,
        ),
        (start(session(), ENDED), Reason.NEVER_OPENED.value),
        (start(None, ENDED), Reason.NEVER_USED.value),
        (start(session(window(error="OSError: no")), ENDED), "OSError: no"),
        (start(session(window(error="OSError: no"), faults=["a fault"]), ENDED), "OSError: no"),
        (
            start(
                session(window(), faults=["a fault"]),
                ENDED,
                settled=settled(problems=["a problem"]),
            ),
            "a fault; a problem",
        ),
        (
            start(session(window(closed=None)), FAILED),
            "the worker ended while the window was open; the profiler's exit code is 3",
        ),
        (
            start(session(window()), FAILED),
            "the profiler left no file; the profiler's exit code is 3",
        ),
        (start(session(window()), ENDED), "the profiler left no file"),
        (start(session(window()), RUNNING), f"the profiler has not written it yet{PLACE}"),
    ],
)
def test_why_a_report_is_missing(rows: Rows, left: Start, reason: str) -> None:
    """The receipt gives the nearest known cause."""
    assert [("step-3", "missing", reason)] == [
        (row.window, row.state, row.reason) for row in rows(left)
    ]


def test_a_file_without_a_byte_is_no_report(rows: Rows) -> None:
    """A profiler that was ended early leaves one, and the receipt does not deny it."""
    left = start(None, ENDED)
    expected = ("lifetime", "A-0.lifetime.txt", "missing", "the profiler left an empty file")
    assert [expected] == told(rows(left, there=("A-0.lifetime.txt",), size=0, steps=None))


def test_why_a_report_of_a_whole_life_is_missing(rows: Rows) -> None:
    """While its worker runs, nothing of it is expected yet."""
    alive = start(None, RUNNING, process=7)
    assert [
        ("lifetime", "A-0.lifetime.txt", "missing", f"the worker is still running{PLACE}")
    ] == told(rows(alive, steps=None))


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (start(session(window()), RUNNING), ("complete", "")),
        (start(session(window(closed=None)), ENDED), ("complete", "")),
        (
            start(session(window(closed=None)), RUNNING),
            ("incomplete", "the profiler was still writing"),
        ),
        (
            start(session(window(closed=None, files=[f"/out/run/node/{FILE}"])), RUNNING),
            ("complete", ""),
        ),
        (
            start(
                session(window(closed=None)),
                RUNNING,
                settled=settled(files={"1": [f"/out/run/node/{FILE}"]}),
            ),
            ("complete", ""),
        ),
    ],
)
def test_when_a_file_is_complete(rows: Rows, left: Start, expected: tuple[str, str]) -> None:
    """Once its window is closed, its profiler has ended, or it has the name that it keeps."""
    assert [("step-3", FILE, *expected)] == told(rows(left, there=(FILE,)))


def test_a_whole_life_needs_no_word_of_the_worker(rows: Rows) -> None:
    """A program that knows nothing of gpuprof has its report."""
    assert [("lifetime", "A-0.lifetime.txt", "complete", "")] == told(
        rows(start(None, ENDED), there=("A-0.lifetime.txt",), steps=None)
    )


def test_of_several_starts_those_count_that_captured(rows: Rows) -> None:
    """Each has a row of its own; where none has captured a window the last one says why."""
    again = "A-0.step-3.2.txt"
    first, second = (
        start(session(window()), ENDED),
        start(session(window(files=[f"/out/run/node/{again}"])), ENDED, "2"),
    )
    other = start(session(), ENDED, "3")
    assert [("step-3", FILE), ("step-3", again)] == [
        found[:2] for found in told(rows(first, second, other))
    ]
    assert [("step-3", "", "missing", Reason.NEVER_USED.value)] == told(
        rows(other, start(None, ENDED, "4"))
    )


def test_who_never_started_and_who_was_left_out(rows: Rows) -> None:
    """The one is missing, the other was to be: its node is not selected."""
    assert [("step-3", "", "missing", "the worker never started")] == told(rows())
    assert [] == rows(start(None, UNSELECTED))
    assert 1 == len(rows(start(None, UNSELECTED), start(session(window()), ENDED, "2")))


def test_a_window_that_is_known_to_have_been_open(rows: Rows) -> None:
    """A full disk has kept the worker from saying so; of another window that says nothing."""
    never = start(session(), ENDED)
    assert "the window's record could not be written" == rows(never, opened=(1,))[0].reason
    assert Reason.NEVER_OPENED.value == rows(never, opened=(2,))[0].reason


def test_a_backend_that_leaves_no_file_of_a_window(install: Callable[..., str]) -> None:
    """That the plan has said so is the reason, and not that the file is missing."""
    install(
        inspect.getsource(journal).replace("for window in windows}", "for window in windows[1:]}"),
        partial="Journal",
    )
    planner = Planner(
        load({"backend": "partial", "worker_groups": ["A"], "steps": [3]}), "run", "/out"
    )
    record = NodeRecord("node", "/out/run/node", (start(session(window()), ENDED),), {})
    found = receipt_rows(
        planner.worker("A", 0, tool=Tool("/usr/bin/env", "1.0")), [record], planner.manager("A")
    )
    assert [("step-3", "", "missing", Reason.NO_FILE_EXPECTED.value)] == told(found)


THIN = """
import attrs, gpuprof

@attrs.frozen
class Options:
    pass

class Thin:
    Options = Options
    def __init__(self, options):
        pass
    @gpuprof.backend.hookimpl
    def start_capture(self):
        pass
    @gpuprof.backend.hookimpl
    def {hook}(self):
        pass
"""


@pytest.mark.parametrize(
    ("hook", "count"),
    [("expected_files", 1), ("stop_capture", 1), ("collect_files", 1), ("open_range", 0)],
)
def test_a_backend_that_says_nothing_of_files_has_no_rows(
    install: Callable[..., str], hook: str, count: int
) -> None:
    """One that has any of the hooks which name files is held to it."""
    install(THIN.format(hook=hook), thin="Thin")
    planner = Planner(
        load({"backend": "thin", "worker_groups": ["A"], "steps": [3]}), "run", "/out"
    )
    assert count == len(receipt_rows(planner.worker("A", 0), [], planner.manager("A")))


def test_an_armed_worker_has_the_windows_that_it_was_told(rows: Rows) -> None:
    """Also those that failed; and none that nobody has asked for."""
    failed = window(2, 5, error="OSError: no")
    left = start(session(window(), failed), ENDED)
    expected = [("step-3", FILE, "complete", ""), ("step-5", "", "missing", "OSError: no")]
    assert expected == told(rows(left, there=(FILE,), steps=[], armed=True))
    assert [] == rows(start(session(), ENDED), steps=[], armed=True)


def test_discrete_windows_are_those_that_there_were(rows: Rows) -> None:
    """One row says that there was none, and why, if it is known."""
    scope = window(scope="train", occurrence=2)
    (row,) = rows(start(session(scope), ENDED), discrete=True)
    assert "step-3 train 2" == row.window
    reasons = [
        rows(*starts, discrete=True)
        for starts in (
            (),
            (start(session(), ENDED),),
            (start(None, UNWRAPPED),),
        )
    ]
    expected = ["the worker never started", "no scope was captured", WITHOUT]
    assert [("discrete", "", "missing", reason) for reason in expected] == [
        told(found)[0] for found in reasons
    ]


def test_a_reached_limit_is_a_row_that_is_not_complete(rows: Rows) -> None:
    """A run that captured fewer scopes than it had does not look complete."""
    captured = session(window(scope="train"), skipped={"max_windows": 3})
    found = rows(
        start(captured, ENDED), start(session(skipped={"max_bytes": 1}), ENDED, "2"), discrete=True
    )
    limits = [row for row in found if row.cause is Reason.LIMIT_REACHED]
    assert [
        ("3 more scopes", "missing", "further scopes were not captured; max_windows reached"),
        ("1 more scope", "missing", "further scopes were not captured; max_bytes reached"),
    ] == [(row.window, row.state, row.reason) for row in limits]


def test_files_of_two_nodes_may_have_one_path() -> None:
    """As where each stages on a disk of its own: their sizes are added up."""
    staged = [
        ReceiptRow(f"A-{rank}", f"n{rank}", "step-3", "/tmp/x.rep", 1024, "complete")
        for rank in range(2)
    ]
    assert (
        "2 of 2 reports complete, 2.0 KiB in total, in /out/run"
        == Receipt(tuple(staged), "/out/run").total
    )


@pytest.mark.parametrize("states", [("incomplete", "complete"), ("complete", "incomplete")])
def test_a_report_of_several_windows_is_complete_if_all_are(
    states: tuple[FileState, FileState],
) -> None:
    """Whichever of them is missing in it."""
    shared = [
        ReceiptRow("A-0", "n0", f"step-{step}", "/tmp/x.rep", 1024, state, planned="x.rep")
        for step, state in enumerate(states)
    ]
    total = Receipt(tuple(shared), "/out/run").total
    assert total.startswith("0 of 1 report complete")


@pytest.mark.parametrize(("count", "visible"), [(20, 20), (21, 0)])
def test_many_complete_rows_are_left_out(count: int, visible: int) -> None:
    """Of more than twenty rows, those without a problem."""
    rows = [
        ReceiptRow(f"A-{rank}", "n0", "step-3", "/tmp/x.rep", 1024, "complete")
        for rank in range(count)
    ]
    assert visible == Receipt(tuple(rows), "/out/run").table().count("step-3")


def test_nothing_was_profiled() -> None:
    """There is no directory to speak of."""
    assert "Nothing was profiled." == Receipt((), None).table()


def test_a_stall_of_the_run_is_named(tmp_path: Path) -> None:
    """With the file that says what each process did then."""
    (tmp_path / "stall-1.txt").write_text("deadlock: A-0 waits for B-0 waits for A-0")
    home = Collection(ThisNode(), str(tmp_path), str(tmp_path), enabled=False)
    receipt = make_receipt(Planner(load({"backend": "none"}), "run", "/out"), [], [], home)
    assert f"{tmp_path}/stall-1.txt says what each one did" in receipt.table()

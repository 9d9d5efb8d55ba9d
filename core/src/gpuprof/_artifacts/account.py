"""What the nodes have of a run, held against the plan."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import attrs
import pluggy

from gpuprof._artifacts.receipt import NEVER_OPENED, NEVER_USED, ReceiptRow
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._artifacts.settle import captured_windows, here
from gpuprof._plan.worker import PlannedWorker
from gpuprof._session.file import WindowEntry
from gpuprof._session.step_times import StepTimes
from gpuprof.backend.types import Window, Worker

NO_FILE = "these options leave no file of this window: see the notes of gpuprof plan"

_NOT_BEHIND = (
    "the worker was not started behind the profiler: something else replaced its command, such as "
    "a profiler of its runtime_env, "
    "or Ray's Python on its node lacks gpuprof"
)


def receipt_rows(
    planned: PlannedWorker,
    records: Sequence[NodeRecord],
    hooks: pluggy.PluginManager,
    opened: Collection[int] = (),
) -> list[ReceiptRow]:
    """Hold what the nodes have against one worker's plan: a row for each window, and for each
    restart that captured it again.

    Args:
        opened: the numbers of the windows that are known to have been open, whatever the worker's
            file says.
    """
    worker = planned.worker
    if not any(
        getattr(hooks.hook, name).get_hookimpls()
        for name in ("expected_files", "stop_capture", "recover")
    ):
        return []  # the backend does not say what it leaves
    starts = [
        (start, record)
        for record in records
        for start in record.starts
        if (start.group, start.rank) == (worker.group, worker.rank)
    ]
    if starts and all(start.left_out for start, _ in starts):
        return []
    if not worker.windows:
        return _armed_rows(planned, starts, hooks)
    if worker.discrete:
        return _discrete_rows(planned, starts, hooks)
    rows = []
    for window in worker.windows:
        file = planned.files.get(window.number, "")
        # Of several starts those that captured the window count; if none did, the last one says
        # why.
        captured = [
            (start, record) for start, record in starts if window in captured_windows(worker, start)
        ]
        for start, record in captured or starts[-1:]:
            row = _row(planned, start, record, window, hooks)
            if row.reason == NEVER_OPENED and window.number in opened:
                row = attrs.evolve(row, reason="the worker's record of it could not be written")
            rows.append(attrs.evolve(row, planned=file))
        if not starts:
            rows.append(
                ReceiptRow(
                    worker.name,
                    "",
                    window.label,
                    None,
                    0,
                    "missing",
                    "the worker never started",
                    file,
                )
            )
    return rows


def _armed_rows(
    planned: PlannedWorker, starts: list[tuple[Start, NodeRecord]], hooks: pluggy.PluginManager
) -> list[ReceiptRow]:
    """A row for each window that it was told to open, also if that failed; nothing is missing where
    nobody told it anything.
    """
    return [
        _row(planned, start, record, window, hooks)
        for start, record in starts
        for window in captured_windows(planned.worker, start, failed=True)
    ]


def _discrete_rows(
    planned: PlannedWorker, starts: list[tuple[Start, NodeRecord]], hooks: pluggy.PluginManager
) -> list[ReceiptRow]:
    """A row for each scope that was captured, and one that says so where there was none."""
    worker = planned.worker
    rows = [
        _row(planned, start, record, window, hooks)
        for start, record in starts
        for window in captured_windows(worker, start)
    ]
    if rows:
        return rows
    start, record = starts[-1] if starts else (None, None)
    reason = (_why_without(start, planned) if start else "") or "no scope was captured"
    node = record.node if record else ""
    return [
        ReceiptRow(
            worker.name,
            node,
            "discrete",
            None,
            0,
            "missing",
            reason if starts else "the worker never started",
        )
    ]


def skipped_scopes(planned: PlannedWorker, records: Sequence[NodeRecord]) -> list[str]:
    """What to say of scopes that came after `max_windows`, or when `max_bytes` were used up."""
    skipped: Counter[str] = Counter()
    for start in (start for record in records for start in record.starts):
        if (start.group, start.rank) == (planned.worker.group, planned.worker.rank):
            skipped.update(start.session["skipped"] if start.session else {})
    return [
        f"{planned.worker.name}: {count} more scopes were not captured: {key}"
        for key, count in sorted(skipped.items())
    ]


def _row(
    planned: PlannedWorker,
    start: Start,
    record: NodeRecord,
    window: Window,
    hooks: pluggy.PluginManager,
) -> ReceiptRow:
    name = planned.worker.name
    windows = captured_windows(planned.worker, start)
    mine = next((entry for entry in start.windows if entry["number"] == window.number), None)
    named = start.settled["files"].get(str(window.number)) if start.settled else None
    named = named or (mine["files"] if mine else None)
    file = None
    if named:
        file = named[0]
    elif window in windows:
        worker = here(planned.worker, start, record)
        expected = hooks.hook.expected_files(worker=worker, windows=windows)
        file = (expected or {}).get(window.number)
        if expected is not None and file is None:
            return ReceiptRow(name, record.node, window.label, None, 0, "missing", NO_FILE)
    size = record.sizes.get(os.path.basename(file), 0) if file else 0
    if size and (named or start.ended or (mine is not None and mine["closed"])):
        return ReceiptRow(
            name,
            record.node,
            window.label,
            file,
            size,
            "complete",
            _what_else(planned.worker, window, file or ""),
        )
    if size:
        return ReceiptRow(
            name,
            record.node,
            window.label,
            file,
            size,
            "incomplete",
            "the profiler was still writing",
        )
    return ReceiptRow(
        name, record.node, window.label, file, 0, "missing", _why_missing(start, mine, planned)
    )


def _what_else(worker: Worker, window: Window, file: str) -> str:
    """What to say of a file that holds more than the window."""
    whole = worker.final_stem(Window(1, None, None))
    # a name without the step says nothing
    if window.start is None or whole == worker.final_stem(window):
        return ""
    return (
        "one file for the whole process"
        if os.path.basename(file).startswith(os.path.basename(whole))
        else ""
    )


def _why_without(start: Start, planned: PlannedWorker) -> str:
    """Why the worker ran without its profiler; empty if it had it."""
    if start.tool is None:
        return _NOT_BEHIND if planned.wrapped and start.session else ""
    return start.tool["reason"] if start.state == "unwrapped" else ""


def _why_missing(start: Start, window: WindowEntry | None, planned: PlannedWorker) -> str:
    without = _why_without(start, planned)
    if without:
        return without
    if not start.began:
        return "the worker never started behind the profiler"
    if window is not None and window["error"]:
        return window["error"]
    faults = [
        *(start.session["faults"] if start.session else ()),
        *(start.settled["problems"] if start.settled else ()),
    ]
    if faults:
        return "; ".join(faults)
    if window is None and start.process is not None and planned.worker.lifetime:
        return "the worker still runs" + _place_of(start)
    if window is None:
        return NEVER_OPENED if start.session else NEVER_USED
    if window["closed"] is None:
        return "the worker ended while the window was open" + _exit_of(start)
    if start.ended:
        return "the profiler left no file" + _exit_of(start)
    return "the profiler has not written it yet" + _place_of(start)


def _place_of(start: Start) -> str:
    """Where what there is lies meanwhile."""
    scratch = start.tool["scratch"] if start.tool else ""
    return f"; what there is of it lies in {scratch}" if scratch else ""


def _exit_of(start: Start) -> str:
    code = start.tool["exit_code"] if start.tool else 0
    return f" (the profiler's exit code is {code})" if code else ""


def of_workers(records: Iterable[NodeRecord]) -> StepTimes:
    """The steps that workers have counted themselves, of all of them together."""
    total = StepTimes()
    for session in (start.session for record in records for start in record.starts):
        if session is not None:
            times = session["step_times"]
            total.inside += times["inside"]
            total.outside += times["outside"]
            total.count_inside += times["count_inside"]
            total.count_outside += times["count_outside"]
    return total

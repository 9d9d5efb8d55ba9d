"""Compares the files of a run on its nodes with the plan."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import ReceiptRow
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._artifacts.settle import captured_windows, here
from gpuprof._plan.worker import PlannedWorker
from gpuprof._session.file import WindowEntry
from gpuprof._session.step_times import StepTimes
from gpuprof._session.windows import BUSY
from gpuprof._shim.tool import UNKNOWN_EXIT_CODE
from gpuprof.backend.boundary import Hooks
from gpuprof.backend.types import Window, Worker

Why = tuple[Reason, str]
"""A reason with its detail."""


def receipt_rows(
    plan: PlannedWorker,
    records: Sequence[NodeRecord],
    hooks: Hooks,
    opened: Collection[int] = (),
) -> list[ReceiptRow]:
    """Make the rows of one worker: one for each window, and for each restart that captured it.

    Args:
        opened: the numbers of windows known to have been opened, even if the worker's session file
            does not list them.
    """
    worker = plan.worker
    if not any(
        getattr(hooks.hook, name).get_hookimpls()
        for name in ("expected_files", "stop_capture", "collect_files")
    ):
        return []  # the backend names no files
    starts = [
        (start, record)
        for record in records
        for start in record.starts
        if (start.group, start.rank) == (worker.group, worker.rank)
    ]
    if starts and all(start.left_out for start, _ in starts):
        return []
    if not worker.windows:
        return list(_opened_rows(plan, starts, hooks, failed=True))  # nothing else is missing
    if worker.discrete:
        return list(_opened_rows(plan, starts, hooks)) or [_why_no_scope(plan, starts)]
    rows = []
    for window in worker.windows:
        file = plan.files.get(window.number, "")
        # One row for each start that captured the window; if none did, the last start tells why.
        captures = [
            (start, record) for start, record in starts if window in captured_windows(worker, start)
        ]
        for start, record in captures or starts[-1:]:
            row = _row(plan, start, record, window, hooks)
            if row.cause is Reason.NEVER_OPENED and window.number in opened:
                row = attrs.evolve(row, cause=Reason.UNRECORDED)
            rows.append(attrs.evolve(row, planned=file))
        if not starts:
            row = _missing(worker.name, "", window.label, (Reason.NEVER_STARTED, ""))
            rows.append(attrs.evolve(row, planned=file))
    return rows


def _opened_rows(
    plan: PlannedWorker,
    starts: list[tuple[Start, NodeRecord]],
    hooks: Hooks,
    failed: bool = False,
) -> Iterator[ReceiptRow]:
    """A row for each opened window and each reached limit; with `failed`, failed windows, too."""
    for start, record in starts:
        for window in captured_windows(plan.worker, start, failed):
            yield _row(plan, start, record, window, hooks)
        yield from _skipped_rows(plan, start, record)


def _why_no_scope(plan: PlannedWorker, starts: list[tuple[Start, NodeRecord]]) -> ReceiptRow:
    """The row with the reason why discrete captured no scope."""
    if not starts:
        return _missing(plan.worker.name, "", "discrete", (Reason.NEVER_STARTED, ""))
    start, record = starts[-1]
    why = _why_without(start, plan) or (Reason.NO_SCOPE, "")
    return _missing(plan.worker.name, record.node, "discrete", why)


def _skipped_rows(plan: PlannedWorker, start: Start, record: NodeRecord) -> list[ReceiptRow]:
    """A row for each limit that a start reached: `max_windows` or `max_bytes`."""
    counts = start.session["skipped"] if start.session else {}
    return [
        _missing(
            plan.worker.name,
            record.node,
            f"{count} more scope{'' if count == 1 else 's'}",
            (Reason.LIMIT_REACHED, f"{limit} reached"),
        )
        for limit, count in sorted(counts.items())
    ]


def _row(
    plan: PlannedWorker,
    start: Start,
    record: NodeRecord,
    window: Window,
    hooks: Hooks,
) -> ReceiptRow:
    name = plan.worker.name
    windows = captured_windows(plan.worker, start)
    session_entry = next(
        (entry for entry in start.windows if entry["number"] == window.number), None
    )
    files = start.settled["files"].get(str(window.number)) if start.settled else None
    files = files or (session_entry["files"] if session_entry else None)
    file = None
    if files:
        # prefer the path where the file is found: the run directory may have been moved or copied
        name_here = os.path.basename(files[0])
        file = os.path.join(record.directory, name_here) if name_here in record.sizes else files[0]
    elif window in windows:
        worker = here(plan.worker, start, record)
        files_by_window = hooks.hook.expected_files(worker=worker, windows=windows)
        file = (files_by_window or {}).get(window.number)
        if files_by_window is not None and file is None:
            return _missing(name, record.node, window.label, (Reason.NO_FILE_EXPECTED, ""))
    size = record.sizes.get(os.path.basename(file), 0) if file else 0
    if not size:
        cause, detail = _why_missing(start, session_entry, plan)
        if cause is Reason.LEFT_NO_FILE and os.path.basename(file or "") in record.sizes:
            cause = Reason.LEFT_EMPTY_FILE
        row = _missing(name, record.node, window.label, (cause, detail))
        row = attrs.evolve(row, file=file)
        # refused by gpuprof, such as by `max_bytes`
        is_refused = session_entry is not None and session_entry["state"] == "refused"
        return row if is_refused else _with_log(row, start, record)
    row = ReceiptRow(
        worker=name,
        node=record.node,
        window=window.label,
        file=file,
        size=size,
        state="incomplete",
        cause=Reason.STILL_WRITING,
    )
    damage = record.damaged.get(os.path.basename(file or ""))
    if damage:
        damaged_row = attrs.evolve(row, cause=Reason.DAMAGED, detail=damage)
        return _with_log(damaged_row, start, record)
    if not (files or start.ended or (session_entry is not None and session_entry["closed"])):
        return _with_log(row, start, record)
    cause = _holds_more(plan.worker, window, file or "")
    return attrs.evolve(row, state="complete", cause=cause)


_OF_THE_PROFILER = (
    Reason.DAMAGED,
    Reason.ENDED_WHILE_OPEN,
    Reason.FAILED,
    Reason.LEFT_EMPTY_FILE,
    Reason.LEFT_NO_FILE,
    Reason.NEVER_BEGAN,
    Reason.NOT_WRITTEN_YET,
    Reason.STILL_WRITING,
)
"""Causes that the profiler's log may explain."""


def _with_log(row: ReceiptRow, start: Start, record: NodeRecord) -> ReceiptRow:
    """A row with the last lines of the profiler's log, and where the log is."""
    where = f"log {record.node}/{start.log}"
    if row.cause is Reason.UNWRAPPED and start.last_words:  # its cause quotes the log
        return row.add_detail(where)
    if row.cause not in _OF_THE_PROFILER or not start.last_words:
        return row
    return row.add_detail(f'last lines of its {where}: "{start.last_words}"')


def _missing(name: str, node: str, label: str, why: Why) -> ReceiptRow:
    cause, detail = why
    return ReceiptRow(
        worker=name,
        node=node,
        window=label,
        file=None,
        size=0,
        state="missing",
        cause=cause,
        detail=detail,
    )


def _holds_more(worker: Worker, window: Window, file: str) -> Reason:
    """`Reason.WHOLE_PROCESS` if a file holds the whole process instead of one window, or `NONE`."""
    whole = worker.final_stem(Window(1, None, None))
    # a template without the step gives both the same name
    if window.start is None or whole == worker.final_stem(window):
        return Reason.NONE
    is_whole = os.path.basename(file).startswith(os.path.basename(whole))
    return Reason.WHOLE_PROCESS if is_whole else Reason.NONE


def _why_without(start: Start, plan: PlannedWorker) -> Why | None:
    """Why the worker ran without its profiler; ``None`` if it ran with it."""
    if start.tool is None:
        if not plan.wrapped or start.session is None:
            return None
        was_behind = start.session["behind_profiler"]
        return Reason.RUN_DELETED if was_behind else Reason.NOT_BEHIND_PROFILER, ""
    return (Reason.UNWRAPPED, start.tool["reason"]) if start.state == "unwrapped" else None


def _why_missing(start: Start, window: WindowEntry | None, plan: PlannedWorker) -> Why:
    """The most direct known cause of a missing report."""
    without = _why_without(start, plan)
    if without is not None:
        return without
    if not start.began:
        return Reason.NEVER_BEGAN, ""
    if window is not None and window["error"]:
        return Reason.FAILED, window["error"]
    faults = [
        *(start.session["faults"] if start.session else ()),
        *(start.settled["problems"] if start.settled else ()),
    ]
    if faults:
        return Reason.FAILED, "; ".join(faults)
    if window is None and start.process is not None and plan.worker.lifetime:
        return Reason.STILL_RUNS, _scratch_of(start)
    if window is None and start.session is None and plan.worker.lifetime and plan.wrapped:
        return Reason.LEFT_NO_FILE, _exit_code_of(start)  # a lifetime profile needs no session
    if window is None:
        return Reason.NEVER_OPENED if start.session else Reason.NEVER_USED, ""
    if window["state"] in BUSY and start.process is not None:
        return Reason.STILL_RUNS, _scratch_of(start)
    if window["state"] in BUSY:
        return Reason.ENDED_WHILE_OPEN, _exit_code_of(start)
    if start.ended:
        return Reason.LEFT_NO_FILE, _exit_code_of(start)
    return Reason.NOT_WRITTEN_YET, _scratch_of(start)


def _scratch_of(start: Start) -> str:
    """A sentence that says where the unfinished report is; empty without one."""
    scratch = start.tool["scratch"] if start.tool else ""
    return f"the unfinished report is in {scratch}" if scratch else ""


def _exit_code_of(start: Start) -> str:
    code = start.tool["exit_code"] if start.tool else 0
    if code is None:
        return UNKNOWN_EXIT_CODE
    return f"the profiler's exit code is {code}" if code else ""


def of_workers(records: Iterable[NodeRecord]) -> StepTimes:
    """The step times of all workers with their own steps, added up."""
    total = StepTimes()
    for session in (start.session for record in records for start in record.starts):
        if session is not None:
            times = session["step_times"]
            total.inside += times["inside"]
            total.outside += times["outside"]
            total.edges += times["edges"]
            total.count_inside += times["count_inside"]
            total.count_outside += times["count_outside"]
    return total

"""Settles ended workers on their node: ends stalled profilers, saves reports, and names them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping

import attrs

from gpuprof._artifacts.formats import SETTLED_VERSION, Settled
from gpuprof._artifacts.records import NodeRecord, Start, read_node
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._session.file import WindowEntry, new_entry, window_of
from gpuprof._shim.files import ToolStatus, file_size, is_full, write_json
from gpuprof._shim.processes import process_start
from gpuprof._shim.safe import load_json
from gpuprof._shim.scratch import (
    PATIENCE,
    STALLED,
    end_tool,
    remove_scratch,
    remove_stale_scratch,
    work_of,
)
from gpuprof.backend.types import Collected, Window, Worker


def settle_node(
    planner: Planner,
    plan: Mapping[tuple[str, int], PlannedWorker],
    give_up: bool = False,
    node: str | None = None,
    again: bool = False,
) -> NodeRecord:
    """Settle the workers of this node whose profiler has ended or stalled, and read the node.

    Each start of a worker is settled once.

    Args:
        give_up: end the remaining processes of profilers whose main process has ended. A profiler
            that is still writing its report may finish: `gpuprof collect` brings it home later.
        node: a dead node's name, to settle that node's files on a shared file system instead.
        again: retry saving reports that could not be saved before.
    """
    run_directory = os.path.join(planner.output_dir, planner.run)
    record = read_node(run_directory, node)
    settled: dict[Start, Settled] = {}
    for start in record.starts:
        worker_plan = plan.get((start.group, start.rank))
        if worker_plan is None:
            continue
        if start.settled is not None and not (again and _has_more(start)):
            continue
        if start.tool is None:
            if _may_have_left_more(planner, worker_plan, start):
                settled[start] = _settle(planner, worker_plan, start, record)
            continue
        if start.state == "finishing":
            is_abandoned = _is_abandoned(start)
            stalls = not is_abandoned and _stalls(start, record)
            if is_abandoned or stalls or (give_up and not _is_at_work(start)):
                end_tool(start.tool["scratch"], at_once=is_abandoned or stalls)
                start.tool["state"] = "ended"
            if stalls:
                start.tool["reason"] = STALLED
                with contextlib.suppress(OSError):  # a full disk
                    write_json(_private_file(record, start, "tool"), start.tool)
        if start.state == "ended":
            settled[start] = _settle(planner, worker_plan, start, record)
    _clean_up({os.path.dirname(start.tool["scratch"]) for start in settled if start.tool})
    # repeated in memory: on a full disk the file may not exist
    starts = tuple(
        attrs.evolve(start, settled=settled.get(start, start.settled)) for start in record.starts
    )
    record = attrs.evolve(read_node(run_directory, node), starts=starts) if settled else record
    return find_damage(planner, record)


def find_damage(planner: Planner, record: NodeRecord) -> NodeRecord:
    """Have the backend check each report of a node, because a full disk truncates reports."""
    check = planner.manager("all").hook.check_report
    damage = {}
    for name, size in record.sizes.items():
        path = os.path.join(record.directory, name)
        try:
            problem = check(path=path) if size else None
        except FileNotFoundError:  # it has just been moved home
            continue
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            damage[name] = problem + ("; the disk is full" if is_full(record.directory) else "")
    return attrs.evolve(record, damaged=damage)


def _may_have_left_more(planner: Planner, plan: PlannedWorker, start: Start) -> bool:
    """Whether a program that the worker itself started may have written reports after its end."""
    is_over = start.session is not None and start.process is None
    if plan.wrapped or start.left_out or not is_over:
        return False
    return bool(planner.manager(start.group).hook.collect_files.get_hookimpls())


def _has_more(start: Start) -> bool:
    """Whether a settled start left reports that could not be saved but still exist."""
    return bool(
        start.settled
        and start.settled["problems"]
        and start.tool
        and os.path.isdir(start.tool["scratch"])
    )


def _is_abandoned(start: Start) -> bool:
    """Whether the worker never started and its shim has ended, so that it will not start."""
    return not start.began and start.tool is not None and process_start(start.tool["shim"]) is None


def _is_at_work(start: Start) -> bool:
    """Whether the profiler's main process, or the shim that waits for it, is still running."""
    assert start.tool is not None
    front = start.tool["start"]
    return (bool(front) and process_start(start.tool["pid"]) == front) or _has_shim(start.tool)


def _has_shim(tool: ToolStatus) -> bool:
    return tool["shim"] != os.getpid() and process_start(tool["shim"]) is not None


def _stalls(start: Start, record: NodeRecord) -> bool:
    """Whether the profiler has stalled. False if a shim waits for it and will end it itself."""
    assert start.tool is not None
    if _has_shim(start.tool):
        return False
    return stalled(start.tool["scratch"], _private_file(record, start, "finishing"))


def _private_file(record: NodeRecord, start: Start, suffix: str) -> str:
    return os.path.join(record.directory, ".gpuprof", f"{start.stem}.{suffix}")


def _settle(planner: Planner, plan: PlannedWorker, start: Start, record: NodeRecord) -> Settled:
    scratch = start.tool["scratch"] if start.tool else ""
    worker = here(plan.worker, start, record)
    windows = captured_windows(worker, start)
    before = start.settled["files"] if start.settled else {}
    earlier_files = {int(number): paths for number, paths in before.items() if number.isdecimal()}
    session_files = {
        window["number"]: window["files"] for window in start.windows if window["files"]
    }
    arguments = {
        "worker": worker,
        "windows": windows,
        "files": session_files | earlier_files,
        "ended": True,
        "scratch": scratch,
    }
    problems = []
    try:
        collection = planner.manager(worker.group).hook.collect_files(**arguments) or Collected()
    except Exception as error:
        collection = Collected(problem=str(error) or type(error).__name__)
    if collection.problem:
        problems.append(collection.problem)
    files: dict[int, list[str]] = {**earlier_files, **collection.files}
    settled: Settled = {
        "version": SETTLED_VERSION,
        "files": {str(number): paths for number, paths in files.items()},
        "problems": problems,
        # a program without gpuprof has no session file that lists its windows
        "windows": captured_entries(worker, start),
    }
    with contextlib.suppress(OSError):
        write_json(
            os.path.join(record.directory, ".gpuprof", f"{worker.file_stem}.settled"), settled
        )
    if not problems and scratch:
        remove_scratch(scratch, leftovers=True)
    log = os.path.join(record.directory, start.log)
    if not file_size(log):  # the shim removes it, unless it was killed
        with contextlib.suppress(OSError):
            os.unlink(log)
    return settled


def _clean_up(parents: Iterable[str]) -> None:
    """Remove leftovers of earlier runs from the folders of the tools' temporary directories.

    This is done at a worker's end, so that no worker's start has to wait for it.
    """
    with contextlib.suppress(OSError):  # the leftovers belong to other runs
        for parent in filter(None, parents):
            remove_stale_scratch(parent)


def here(worker: Worker, start: Start, record: NodeRecord) -> Worker:
    """The planned worker, with the node, incarnation, directory and process id of its start."""
    return attrs.evolve(
        worker,
        node=record.node,
        incarnation=start.incarnation,
        directory=record.directory,
        pid=str(start.pid),
    )


def captured_windows(worker: Worker, start: Start, failed: bool = False) -> tuple[Window, ...]:
    """The windows that were opened, in order of opening; see `captured_entries`."""
    return tuple(map(window_of, captured_entries(worker, start, failed)))


def captured_entries(worker: Worker, start: Start, failed: bool = False) -> list[WindowEntry]:
    """The entries of the windows that were opened, in order of opening.

    A worker that never used gpuprof has its whole-life window, if one was planned.

    Args:
        failed: include windows that were refused or failed.
    """
    if start.session is None:
        whole_life = start.began and worker.lifetime and not worker.discrete
        return [new_entry(window) for window in worker.windows if whole_life]
    return [
        entry for entry in start.windows if failed or entry["state"] not in ("refused", "failed")
    ]


def stalled(scratch: str, note: str) -> bool:
    """Whether the tool's processes have neither run nor waited for a disk for `PATIENCE` seconds.

    Args:
        note: a file that keeps this call's observations, because the next call may come from
            another process.
    """
    ticks, busy = work_of(scratch)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # damaged, or none
        last_look = load_json(note)
        if not busy and last_look["ticks"] == ticks:
            return bool(time.time() > last_look["since"] + PATIENCE)
    with contextlib.suppress(OSError):  # a full disk: the caller has a deadline
        write_json(note, {"ticks": ticks, "since": time.time()})
    return False

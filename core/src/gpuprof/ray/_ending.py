"""Ends a run on Ray: collects trees, ends actors, moves files to the driver."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from typing import Any

import attrs
import ray

from gpuprof._artifacts import close
from gpuprof._artifacts.collect import Collection
from gpuprof._artifacts.formats import WorkerEntry
from gpuprof._artifacts.manifest import Filed, checksum
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import NodeRecord, read_node
from gpuprof._log import log
from gpuprof._plan.worker import PlannedWorker
from gpuprof._report import printing
from gpuprof._report.trees import Tree
from gpuprof._session import public
from gpuprof._session.file import TreeEntry
from gpuprof._session.left_out import LeftOut
from gpuprof._shim.files import write_json
from gpuprof._shim.node import node_name
from gpuprof._shim.safe import make_directory
from gpuprof.ray._nodes import Nodes

Key = tuple[str, int]
Look = Callable[[bool], tuple[Receipt, list[NodeRecord]]]

_COLLECT_DEADLINE = 10.0
"""Seconds to wait for trees. The tree of a worker that stays busy is read from its file."""
_GRACE = 5.0
"""Seconds an actor has to end by itself before it is killed."""


def ask_for_trees(handles: Mapping[Key, Any]) -> dict[Key, Tree]:
    """The trees of the actors that answer, by group and rank."""
    trees: dict[Key, Tree] = {}
    if ray.is_initialized() and handles:
        calls = {handle.__ray_call__.remote(_snapshot): key for key, handle in handles.items()}
        for reference in ray.wait(list(calls), num_returns=len(calls), timeout=_COLLECT_DEADLINE)[
            0
        ]:
            with contextlib.suppress(ray.exceptions.RayError):
                group, rank = calls[reference]
                trees[group, rank] = printing.read_tree(ray.get(reference), f"{group}-{rank}")
    return trees


def all_trees(
    answers: Mapping[Key, Tree], handles: Mapping[Key, Any], records: Sequence[NodeRecord]
) -> dict[Key, Tree]:
    """The workers' trees by group and rank: from the worker's answer, or else from its files.

    A worker with several files, one for each of its starts, gets the merged tree of these files.
    Empty trees are left out.
    """
    file_trees: dict[Key, list[Tree]] = {}
    for start in (start for record in records for start in record.starts):
        if start.session is not None:
            tree = printing.read_tree(start.session, start.name)
            file_trees.setdefault((start.group, start.rank), []).append(tree)
    trees = {}
    for key in [*handles, *sorted(key for key in file_trees if key not in handles)]:
        # a worker writes its file before it answers, so the files are up to date
        tree = (
            answers[key]
            if key in answers and len(file_trees.get(key, ())) < 2
            else Tree.merge(file_trees.get(key, []), f"{key[0]}-{key[1]} profile")
        )
        if tree:
            trees[key] = tree
    return trees


def finish_reports(
    look: Look,
    wrapped_workers: Sequence[Key],
    handles: Mapping[Key, Any],
    idle: IdleWorkers,
    out_of_reach: Callable[[], set[Key]],
    timeout: float,
    actors_of_workers: Set[Key] = frozenset(),
) -> tuple[Receipt, list[NodeRecord]]:
    """End the workers whose reports are not complete, and wait for their profilers.

    Args:
        look: settles the nodes and makes the receipt; its argument says whether to stop waiting for
            profilers.
        out_of_reach: returns the living actors without a handle in this process. They cannot be
            killed from here, so they are not waited for after the grace period of `_GRACE`.
    """
    receipt, records = look(False)
    unfinished_workers = {row.worker for row in receipt.rows if row.state != "complete"}
    waiting = {key for key in wrapped_workers if f"{key[0]}-{key[1]}" in unfinished_workers}
    actors = [handles[key] for key in waiting if key in handles]
    if ray.is_initialized():
        for handle in actors:
            # With retries, Ray would terminate the restarted actor, too.
            handle.__ray_terminate__.options(max_task_retries=0).remote()
    start = time.monotonic()
    has_killed = False

    def goes_on(result: tuple[Receipt, list[NodeRecord]]) -> bool:
        nonlocal has_killed
        if time.monotonic() > start + _GRACE and not has_killed and ray.is_initialized():
            # The terminate call queues behind the actor's current call, which may never return.
            # Killing is safe: windows are closed, the tree is collected, and the profiler still
            # writes a killed worker's report.
            has_killed = True
            for handle in actors:
                ray.kill(handle)
            waiting.difference_update(out_of_reach())
        return idle.end(waiting & actors_of_workers) or _still_running(waiting, result[1])

    return close.wait((receipt, records), look, goes_on, timeout, pause=0.1)


def worker_entries(plan: Iterable[PlannedWorker]) -> list[WorkerEntry]:
    """The plan in the manifest's form, without secrets."""
    return [
        {
            "group": worker_plan.worker.group,
            "rank": worker_plan.worker.rank,
            "profiled": worker_plan.profiled,
            "reason": worker_plan.reason,
            "command": list(worker_plan.command),
            "environment": worker_plan.shown_environment,
            "notes": list(worker_plan.notes),
        }
        for worker_plan in plan
    ]


def bring_home(
    collection: Collection,
    directory: str,
    runner: TreeEntry,
    receipt: Receipt,
    records: list[NodeRecord],
) -> tuple[Receipt, dict[tuple[str, str], Filed]]:
    """Write the driver's tree, and move the nodes' files to the driver.

    Returns:
        The receipt with the files' paths on the driver, and all files of the run by their node and
        their path on that node.
    """
    node = os.path.join(directory, node_name())
    make_directory(node)
    tree = os.path.join(node, "Runner.json")
    write_json(
        tree,
        {"version": 2, "name": "Runner", "run": os.path.basename(directory), **runner},
    )
    with printing.progress(sum(sum(record.sizes.values()) for record in records)) as bar:
        problems = collection.bring(records, progress=bar)
    files = {(node_name(), tree): checksum(tree), **collection.in_place(), **collection.filed}
    return attrs.evolve(
        receipt, rows=tuple(collection.at_home(receipt.rows)), faults=(*receipt.faults, *problems)
    ), files


def interrupted_message(receipt: Receipt, plan: list[PlannedWorker], away: str) -> str:
    """The log line for a second Ctrl-C: which reports may be lost, and where the files are."""
    receipt_workers = {row.worker for row in receipt.rows}
    open_rows = [f"{row.worker} {row.window}" for row in receipt.rows if row.state != "complete"]
    missing_workers = [
        worker_plan.worker.name
        for worker_plan in plan
        if worker_plan.profiled and worker_plan.worker.name not in receipt_workers
    ]
    reports = ", ".join([*open_rows, *missing_workers]) or "none"
    return (
        f"quit immediately; reports that may be incomplete: {reports}; the files so far are in "
        f"{away} on each node"
    )


def warn_not_finalized(directory: str, pid: int) -> None:
    """Warn at the driver's exit that its run was not finalized.

    Does nothing in a forked child, which inherits this exit handler.
    """
    if os.getpid() == pid:
        log().warning(
            "the run was not finalized; run `gpuprof collect %s` to gather its files and list them",
            directory,
        )


def _still_running(waiting: set[Key], records: list[NodeRecord]) -> bool:
    return any(
        (start.group, start.rank) in waiting and start.state in ("running", "finishing")
        for record in records
        for start in record.starts
    )


def _snapshot(_: object) -> TreeEntry:
    """Return this worker's tree, and write it to its file. Runs in the worker."""
    session = public.session()
    if session is None:
        return LeftOut(public.timing()).entry("wait")
    # read the GPU times first, so that the file has them, too
    tree = session.trees("wait")
    session.end_ledger()  # its file comes home with the others
    session.write()
    session.finish()
    return tree


Process = tuple[str, int]
"""A node's name and a process id there."""
_WORKER, _IDLE = "ray::", "ray::IDLE"
"""How the process titles of Ray's workers begin, and how the title of an idle one begins. The title
of a busy worker has the task's name instead of ``IDLE``."""


class IdleWorkers:
    """Ends processes of a run for which this process has no handle: idle ones that run tasks."""

    def __init__(self, nodes: Nodes, run_directory: str, workers: Container[Key]) -> None:
        self._nodes = nodes
        self._run_directory, self._workers = run_directory, workers
        self._signaled: set[Process] = set()

    def end(self, actors: Set[Key] = frozenset()) -> bool:
        """End idle processes, so that they write their trees and reports.

        Processes that run a task are left alone.

        Args:
            actors: groups and ranks of actors to end as well, even if they are busy.

        Returns:
            Whether any of these processes still exists, signaled now or earlier.
        """
        if not self._workers and not actors:
            return False
        arguments = self._run_directory, self._workers, actors, self._signaled
        processes = [process for some in self._nodes.on_each(_end, *arguments) for process in some]
        self._signaled.update(processes)
        return bool(processes)


def _end(
    run_directory: str,
    workers: Container[Key],
    actors: Container[Key],
    signaled_processes: Container[Process],
) -> list[Process]:
    """Send SIGTERM to a node's idle processes, and to some actors. Runs on that node.

    Signals each process once: a second SIGTERM would end it before its files are written.
    """
    record = read_node(run_directory)
    processes = []
    for start in record.starts:
        key, pid = (start.group, start.rank), start.process
        title = _title(pid) if pid is not None and (key in workers or key in actors) else ""
        if pid is not None and title.startswith(_WORKER if key in actors else _IDLE):
            processes.append((record.node, pid))
    for node, pid in processes:
        if (node, pid) not in signaled_processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    return processes


def _title(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
        return file.read()
    return ""

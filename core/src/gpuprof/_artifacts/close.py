"""Ends a run: waits for profilers, brings the files home, and lists them in a receipt.

A Ray job, `gpuprof run` and `gpuprof collect` end a run with these functions. The three differ in
how they reach the nodes and in what they add to the receipt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Keys
from typing import TypeVar

import attrs

from gpuprof._artifacts import early_ends, manifest, slow_ranks
from gpuprof._artifacts.collect import Collection
from gpuprof._artifacts.formats import Manifest, RunFile
from gpuprof._artifacts.manifest import Filed, checksum
from gpuprof._artifacts.receipt import Receipt, ReceiptRow
from gpuprof._artifacts.records import NodeRecord, read_node, read_nodes
from gpuprof._artifacts.rows import of_workers, receipt_rows
from gpuprof._artifacts.settle import find_damage, settle_node
from gpuprof._config.load import load
from gpuprof._config.programs import with_own_programs
from gpuprof._config.schema import Config
from gpuprof._log import log
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._session import stall
from gpuprof._shim.files import write_json
from gpuprof._shim.node import node_name
from gpuprof._shim.ownership import open_owned
from gpuprof._shim.safe import UnsafeFile
from gpuprof.errors import OutputError

DEADLINE = 120.0
"""Seconds to wait for profilers to end after their workers."""
_PATIENCE = 10.0
"""Seconds to wait for workers to end after their driver has died. The files of workers that live
longer stay on their nodes."""

Key = tuple[str, int]
Found = TypeVar("Found")


def wait(
    state: Found,
    look: Callable[[bool], Found],
    goes_on: Callable[[Found], bool],
    timeout: float = DEADLINE,
    pause: float = 0.05,
) -> Found:
    """Read the nodes repeatedly until nothing is running there.

    Args:
        look: a function that settles ended workers and reads the nodes. Its argument says whether
            to give up on profilers that are still running.
        goes_on: whether, in the state that `look` returned, something is still running.
        timeout: seconds until a last call of `look` that gives up.
    """
    until = time.monotonic() + timeout
    while goes_on(state):
        if time.monotonic() > until:
            return look(True)
        time.sleep(pause)
        state = look(False)
    return state


def make_receipt(
    planner: Planner,
    workers: Iterable[PlannedWorker],
    records: Sequence[NodeRecord],
    home: Collection,
    faults: Iterable[str] = (),
    overhead: str = "",
    opened: Mapping[str, Keys[int]] | None = None,
    explain: Callable[[ReceiptRow], ReceiptRow] = lambda row: row,
) -> Receipt:
    """Make a receipt by comparing the files on the nodes with the plan.

    Args:
        faults: known problems. The receipt adds unreadable files and profilers' problems.
        overhead: the line about the overhead of windows. Default: computed from the workers' step
            times.
        opened: the numbers of windows known to have been opened, by the worker's name.
    """
    rows: list[ReceiptRow] = []
    plans = list(workers)
    sentences = [
        *faults,
        *stall.reports(home.directory),
        *slow_ranks.sentences(home.directory, [plan.worker.name for plan in plans]),
        *(fault for record in records for fault in record.faults),
        *(
            f"{start.name}: {start.tool['reason']}"
            for record in records
            for start in record.starts
            if start.tool and start.state == "ended" and start.tool["reason"]
        ),
    ]
    for plan in plans:
        hooks = planner.manager(plan.worker.group)
        numbers = (opened or {}).get(plan.worker.name, ())
        rows += map(explain, receipt_rows(plan, records, hooks, numbers))
    overhead = overhead or str(of_workers(records))
    return Receipt(tuple(home.at_home(rows)), home.directory, tuple(sentences), overhead)


def settle(about: RunFile, away: str, home: str) -> NodeRecord:
    """Settle this node's part of a run without a driver. Runs on each node.

    Args:
        home: the run directory into which the files will be brought. If `away` is a different
            directory and does not belong to `home`, it is left alone.
    """
    place = os.path.join(away, node_name())
    if away != home and os.path.lexists(place):
        try:
            os.close(open_owned(place, home))
        except (OSError, UnsafeFile) as error:
            fault = f"{node_name()}:{place} left alone: {error}"
            return NodeRecord(node_name(), place, (), {}, (fault,))
    planner = Planner(_config(about), about["run"], os.path.dirname(away))
    plan = plan_of(planner, [read_node(away)])
    patient = time.monotonic() + _PATIENCE
    first = True

    def look(give_up: bool) -> NodeRecord:
        nonlocal first
        again, first = first, False
        return settle_node(planner, plan, give_up, again=again)

    def goes_on(record: NodeRecord) -> bool:
        states = {start.state for start in record.starts}
        return "finishing" in states or ("running" in states and time.monotonic() <= patient)

    return wait(look(False), look, goes_on)


def finished_files(record: NodeRecord) -> NodeRecord:
    """A node's record without reports of workers that are running or whose profilers are."""
    running = tuple(f"{start.stem}." for start in record.starts if not start.over)
    sizes = {
        name: size
        for name, size in record.sizes.items()
        if name.endswith(".json") or not name.startswith(running)
    }
    return attrs.evolve(record, sizes=sizes)


def write_receipt(
    about: RunFile, home: Collection, settled: Iterable[NodeRecord], problems: Iterable[str]
) -> Receipt:
    """Write the manifest of a run without a driver.

    The manifest lacks workers that never started, because only the driver knew of them.

    Args:
        settled: the records of the nodes that answered. For other nodes, only files at home count.
    """
    records = {record.node: record for record in read_nodes(home.directory)}
    came_earlier = {
        (node, name): record.directory for node, record in records.items() for name in record.sizes
    }
    for record in map(home.add_sizes, settled):
        home_record = records.get(record.node)
        records[record.node] = _merge(home_record, record) if home_record else record
    planner = Planner(_config(about), about["run"], os.path.dirname(home.directory))
    records = {node: find_damage(planner, record) for node, record in records.items()}
    plan = plan_of(planner, records.values())
    # a driver that died has taken its workers with it
    early = (
        early_ends.entries(home.directory, early_ends.ended_early(records.values()))
        if about["driver"] is None
        else None
    )
    faults = [*problems, *early_ends.sentences(early or ())]
    receipt = make_receipt(planner, plan.values(), list(records.values()), home, faults)
    rows = tuple(_at_home(row, came_earlier) for row in receipt.rows)
    receipt = attrs.evolve(receipt, rows=rows)
    files = manifest.entries(files_at_home(home.directory), records.values())
    try:
        manifest.write(
            home.directory,
            planner.run,
            manifest.setup(about, records.values()),
            receipt.to_dict(),
            files,
            ended_early=early,
        )
    except OSError as error:  # such as a full disk
        fault = f"manifest.json cannot be written: {error.strerror}"
        receipt = attrs.evolve(receipt, faults=(*receipt.faults, fault))
    return receipt


def _config(about: RunFile) -> Config:
    """The settings of a run, except that programs come only from this user's own configuration."""
    try:
        return load(with_own_programs(about["config"]), system="gpuprof", environ={})
    except RecursionError:
        raise OutputError(
            f"{os.path.join(about['directory'], 'run.json')}: ignored: damaged: its configuration "
            "is nested too deeply"
        ) from None


def _merge(home: NodeRecord, away: NodeRecord) -> NodeRecord:
    """Complete a node's record `away` with the session files and logs that came home earlier.

    The marks in the node's private directory are never brought home, so `away` has priority.
    """
    at_home_starts = {(start.group, start.rank, start.incarnation): start for start in home.starts}
    starts = []
    for start in away.starts:
        at_home = at_home_starts.pop((start.group, start.rank, start.incarnation), None)
        starts.append(
            attrs.evolve(
                start,
                session=start.session or (at_home.session if at_home else None),
                last_words=start.last_words or (at_home.last_words if at_home else ""),
            )
        )
    return attrs.evolve(
        away,
        starts=(*starts, *at_home_starts.values()),
        sizes={**home.sizes, **away.sizes},
        damaged={**home.damaged, **away.damaged},
        faults=tuple(dict.fromkeys((*home.faults, *away.faults))),
    )


def _at_home(row: ReceiptRow, directories: Mapping[tuple[str, str], str]) -> ReceiptRow:
    """Point a row to its file at home if the file came home earlier."""
    name = os.path.basename(row.file or "")
    return (
        attrs.evolve(row, file=os.path.join(directories[row.node, name], name))
        if (row.node, name) in directories
        else row
    )


def list_again(known: Manifest, directory: str, records: Iterable[NodeRecord]) -> int:
    """List the files of a finished run again, because more may have come home since."""
    files_by_path = files_at_home(directory)
    files = manifest.entries(files_by_path, [*read_nodes(directory), *records])
    write_json(os.path.join(directory, "manifest.json"), {**known, "files": files})
    return len(files_by_path)


def files_at_home(directory: str) -> dict[tuple[str, str], Filed]:
    """The files in a run directory, with checksums, by node and path.

    Leaves out files that `checksum` refuses to read.
    """
    files_by_path = {}
    for record in read_nodes(directory):
        for name in record.sizes:
            path = os.path.join(record.directory, name)
            try:
                if not name.startswith("."):
                    files_by_path[record.node, path] = checksum(path)
            except UnsafeFile as error:
                log().warning("%s: left out: %s", path, error)
    return files_by_path


def plan_of(planner: Planner, records: Iterable[NodeRecord]) -> dict[Key, PlannedWorker]:
    """The profiled workers that have started."""
    keys = sorted({(start.group, start.rank) for record in records for start in record.starts})
    plans = {key: planner.worker(*key) for key in keys}
    return {key: worker for key, worker in plans.items() if worker.profiled}

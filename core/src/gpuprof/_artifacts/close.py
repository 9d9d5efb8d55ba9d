"""What `gpuprof collect` does for a run that nobody has finished: what the driver would have done,
from what the run has left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

import attrs

from gpuprof._artifacts import manifest
from gpuprof._artifacts.account import of_workers, receipt_rows, skipped_scopes
from gpuprof._artifacts.collect import Collection
from gpuprof._artifacts.formats import Manifest, RunFile
from gpuprof._artifacts.manifest import Filed, checksum
from gpuprof._artifacts.receipt import Receipt, ReceiptRow
from gpuprof._artifacts.records import NodeRecord, read_node, read_nodes
from gpuprof._artifacts.settle import settle_node
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker

_DEADLINE = 120.0
"""Seconds that profilers have to end after their workers."""
_PATIENCE = 10.0
"""Seconds that workers have to follow a driver that has just died. One that lives on keeps its
files."""
Key = tuple[str, int]


def settle(about: RunFile) -> NodeRecord:
    """Run on a node: wait for profilers whose workers have ended, name what they have finished, and
    read what there is.

    Args:
        about: the run, as it was written when it began.
    """
    planner = Planner(load(about["config"], environ={}), about["run"], about["working_dir"])
    directory = os.path.join(planner.output_dir, planner.run)
    plan = _plan(planner, [read_node(directory)])
    began = time.monotonic()
    while True:
        record = settle_node(planner, plan, give_up=time.monotonic() > began + _DEADLINE)
        states = {start.state for start in record.starts}
        if "finishing" not in states and (
            "running" not in states or time.monotonic() > began + _PATIENCE
        ):
            return record
        time.sleep(0.05)


def finished_files(record: NodeRecord) -> NodeRecord:
    """A node's record without the files that its living workers' profilers still write."""
    running = [
        f"{start.group}-{start.rank}.start-{start.incarnation}."
        for start in record.starts
        if not start.over
    ]
    sizes = {
        name: size
        for name, size in record.sizes.items()
        if name.endswith(".json") or not name.startswith(tuple(running))
    }
    return attrs.evolve(record, sizes=sizes)


def write_receipt(
    about: RunFile,
    home: Collection,
    settled: Iterable[NodeRecord],
    problems: Iterable[str],
) -> Receipt:
    """Hold what there is against the run's configuration, and write the manifest.

    Workers that have never started are not known: nobody is left who could tell.

    Args:
        home: what has been brought.
        settled: what the nodes have said; of others only what lies at home is read.
        problems: on the way.
    """
    records = {record.node: record for record in read_nodes(home.directory)}
    came_earlier = {
        (node, name): record.directory for node, record in records.items() for name in record.sizes
    }
    for record in map(home.add_sizes, settled):
        records[record.node] = (
            _of_both(records[record.node], record) if record.node in records else record
        )
    planner = Planner(load(about["config"], environ={}), about["run"], about["working_dir"])
    rows: list[ReceiptRow] = []
    faults = [fault for record in records.values() for fault in record.faults] + list(problems)
    for planned in _plan(planner, records.values()).values():
        rows += receipt_rows(planned, list(records.values()), planner.manager(planned.worker.group))
        faults += skipped_scopes(planned, list(records.values()))
    overhead = str(of_workers(records.values()))
    rows = [_at_home(row, came_earlier) for row in home.at_home(rows)]
    receipt = Receipt(tuple(rows), home.directory, tuple(faults), overhead)
    filed = files_at_home(home.directory)
    files = manifest.entries(filed, records.values())
    manifest.write(home.directory, planner.run, about["backend"], receipt.to_dict(), files)
    return receipt


def _of_both(home: NodeRecord, away: NodeRecord) -> NodeRecord:
    """A node's record of which a part came home before, the sessions' files among it; marks do not
    travel.
    """
    there = {(start.group, start.rank, start.incarnation): start for start in home.starts}
    starts = []
    for start in away.starts:
        at_home = there.pop((start.group, start.rank, start.incarnation), None)
        starts.append(
            attrs.evolve(start, session=start.session or (at_home.session if at_home else None))
        )
    return attrs.evolve(
        away,
        starts=(*starts, *there.values()),
        sizes={**home.sizes, **away.sizes},
        faults=tuple(dict.fromkeys((*home.faults, *away.faults))),
    )


def _at_home(row: ReceiptRow, directories: Mapping[tuple[str, str], str]) -> ReceiptRow:
    """A row with the place of a file that came home before; where a node wrote it, it is no more."""
    name = os.path.basename(row.file or "")
    return (
        attrs.evolve(row, file=os.path.join(directories[row.node, name], name))
        if (row.node, name) in directories
        else row
    )


def list_again(known: Manifest, directory: str, records: Iterable[NodeRecord]) -> int:
    """List the files of a finished run again: more of them may be at home by now.

    Args:
        records: of the nodes that have written them.

    Returns:
        How many files there are.
    """
    filed = files_at_home(directory)
    files = manifest.entries(filed, [*read_nodes(directory), *records])
    manifest.write(
        directory, known["run"], known["backend"], known["receipt"], files, known["workers"]
    )
    return len(filed)


def files_at_home(directory: str) -> dict[tuple[str, str], Filed]:
    """The files in a run's directory, with checksums, by node and path."""
    return {
        (record.node, path): checksum(path)
        for record in read_nodes(directory)
        for path in (
            os.path.join(record.directory, name)
            for name in record.sizes
            if not name.startswith(".")
        )
    }


def _plan(planner: Planner, records: Iterable[NodeRecord]) -> dict[Key, PlannedWorker]:
    """The profiled workers among those that have started."""
    keys = sorted({(start.group, start.rank) for record in records for start in record.starts})
    planned = {key: planner.worker(*key) for key in keys}
    return {key: worker for key, worker in planned.items() if worker.profiled}

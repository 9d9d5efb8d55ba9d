"""What the nodes of the cluster have of a run, held against the plan: those that are alive, and those that have died."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs

from gpuprof import _receipt, _settling
from gpuprof._collection import Collection
from gpuprof._config import Config
from gpuprof._plan import PlannedWorker, Planner
from gpuprof._receipt import ReceiptRow
from gpuprof._records import NodeRecord
from gpuprof.ray._nodes import Nodes

Key = tuple[str, int]
Plan = Mapping[Key, PlannedWorker]


@attrs.frozen
class Account:
    """The state of a run's files.

    Args:
        rows: of the receipt.
        faults: what there is to say beside them.
        records: what each node has.
    """

    rows: tuple[ReceiptRow, ...]
    faults: tuple[str, ...]
    records: tuple[NodeRecord, ...]


def account(
    nodes: Nodes,
    planner: Planner,
    plan: Plan,
    opened: Mapping[str, set[int]],
    handles: Mapping[Key, Any],
    collection: Collection,
    give_up: bool,
) -> Account:
    """Have each node settle what has ended there, and hold it all against the plan.

    Args:
        plan: the profiled workers.
        opened: the numbers of the windows that each worker has said to be open, by its name.
        handles: of the workers' actors.
        collection: what has been brought home already.
        give_up: do not wait any longer for profilers.
    """
    records = nodes.on_each(_settle, planner.config, planner.run, planner.output_dir, plan, give_up)
    lost = nodes.lost()
    for node in lost:
        # On a file system that the nodes share, what a dead one has written is to be seen from here; a staging directory is local.
        if planner.config.staging_dir is None and os.path.isdir(os.path.join(planner.output_dir, planner.run, node)):
            records.append(_settling.settle_node(planner, plan, True, node))
    records = [collection.add_sizes(record) for record in records]
    rows: list[ReceiptRow] = []
    faults = [f"{node}: the node has died; what only its disk has is lost" for node in lost]
    for key, planned in plan.items():
        mine = _receipt.receipt_rows(planned, records, planner.manager(planned.worker.group), opened.get(planned.worker.name, ()))
        place = nodes.of_actor(handles[key]) if lost and key in handles else None
        rows += [_on_dead_node(row, place) if place in lost and row.state != "complete" else row for row in mine]
        faults += _receipt.skipped_scopes(planned, records)
    return Account(tuple(rows), tuple(faults), tuple(records))


def _on_dead_node(row: ReceiptRow, node: str | None) -> ReceiptRow:
    return attrs.evolve(row, node=node or row.node, reason=f"its node {node} has died")


def _settle(config: Config, run: str, output_dir: str, plan: Plan, give_up: bool) -> NodeRecord:
    """Run on a node: name what has been finished there, and read it all."""
    return _settling.settle_node(Planner(config, run, output_dir), plan, give_up)

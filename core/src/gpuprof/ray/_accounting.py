"""What the nodes of the cluster have of a run, held against the plan: those that are alive, and those that have died."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs
import ray

from gpuprof import _receipt, _settling
from gpuprof._collection import LONG, Collection
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
    records, faults = _settled(nodes, planner, plan, give_up)
    lost = nodes.lost()
    # On a file system that the nodes share, what a dead one has written is to be seen from here; a staging directory is local.
    shared = [node for node in lost if os.path.isdir(os.path.join(planner.output_dir, planner.run, node))]
    if planner.config.staging_dir is None:
        records += [_settling.settle_node(planner, plan, True, node) for node in shared]
    records = [collection.add_sizes(record) for record in records]
    rows: list[ReceiptRow] = []
    faults += [f"{node}: the node has died; what only its disk has is lost" for node in lost]
    for key, planned in plan.items():
        mine = _receipt.receipt_rows(planned, records, planner.manager(planned.worker.group), opened.get(planned.worker.name, ()))
        place = nodes.of_actor(handles[key]) if lost and key in handles else None
        rows += [_on_dead_node(row, place) if place in lost and row.state != "complete" else row for row in mine]
        faults += _receipt.skipped_scopes(planned, records)
    return Account(tuple(rows), tuple(faults), tuple(records))


def _settled(nodes: Nodes, planner: Planner, plan: Plan, give_up: bool) -> tuple[list[NodeRecord], list[str]]:
    """What each node has, and which have not said."""
    records: list[NodeRecord] = []
    silent: list[str] = []
    for answer in nodes.ask(_settle, planner.config, planner.run, planner.output_dir, plan, give_up, timeout=LONG):
        if answer.result is not None:
            records.append(answer.result)
        elif isinstance(answer.error, (TimeoutError, ray.exceptions.RayError)):
            silent.append(answer.node)
        elif answer.error is not None:
            raise answer.error
    living = set(silent) - set(nodes.lost())
    return records, [f"{node}: it has not answered; its files are not accounted for" for node in sorted(living)]


def _on_dead_node(row: ReceiptRow, node: str | None) -> ReceiptRow:
    return attrs.evolve(row, node=node or row.node, reason=f"its node {node} has died")


def _settle(config: Config, run: str, output_dir: str, plan: Plan, give_up: bool) -> NodeRecord:
    """Run on a node: name what has been finished there, and read it all."""
    return _settling.settle_node(Planner(config, run, output_dir), plan, give_up)

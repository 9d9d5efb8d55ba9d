"""What the nodes of the cluster have of a run, held against the plan: those that are alive, and
those that have died.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from typing import Any

import attrs
import ray

from gpuprof._artifacts.account import receipt_rows, skipped_scopes
from gpuprof._artifacts.collect import LONG, Collection
from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import ReceiptRow, how_far
from gpuprof._artifacts.records import NodeRecord
from gpuprof._artifacts.settle import settle_node
from gpuprof._config.schema import Config
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof.ray._mistakes import NEVER_ADDED
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
    # On a file system that the nodes share, what a dead one has written is to be seen from here; a
    # staging directory is local.
    shared = [
        node for node in lost if os.path.isdir(os.path.join(planner.output_dir, planner.run, node))
    ]
    if planner.config.staging_dir is None:
        records += [settle_node(planner, plan, True, node) for node in shared]
    records = [collection.add_sizes(record) for record in records]
    rows: list[ReceiptRow] = []
    faults += [fault for record in records for fault in record.faults]
    faults += [f"{node}: the node has died; what only its disk has is lost" for node in lost]
    for key, planned in plan.items():
        mine = receipt_rows(
            planned,
            records,
            planner.manager(planned.worker.group),
            opened.get(planned.worker.name, ()),
        )
        place = nodes.of_actor(handles[key]) if lost and key in handles else None
        rows += [
            _on_dead_node(row, place) if place in lost and row.state != "complete" else row
            for row in mine
        ]
        faults += skipped_scopes(planned, records)
    return Account(tuple(rows), tuple(faults), tuple(records))


def _settled(
    nodes: Nodes, planner: Planner, plan: Plan, give_up: bool
) -> tuple[list[NodeRecord], list[str]]:
    """What each node has, and which have not said."""
    records: list[NodeRecord] = []
    silent: list[str] = []
    for answer in nodes.ask(
        _settle, planner.config, planner.run, planner.output_dir, plan, give_up, timeout=LONG
    ):
        if answer.result is not None:
            records.append(answer.result)
        elif isinstance(answer.error, (TimeoutError, ray.exceptions.RayError)):
            silent.append(answer.node)
        elif answer.error is not None:
            raise answer.error
    living = set(silent) - set(nodes.lost())
    return records, [
        f"{node}: it has not answered; its files are not accounted for" for node in sorted(living)
    ]


def _on_dead_node(row: ReceiptRow, node: str | None) -> ReceiptRow:
    node = node or row.node
    return attrs.evolve(row, node=node, cause=Reason.NODE_DIED, detail=node)


def _settle(config: Config, run: str, output_dir: str, plan: Plan, give_up: bool) -> NodeRecord:
    """Run on a node: name what has been finished there, and read it all."""
    return settle_node(Planner(config, run, output_dir), plan, give_up)


def explained(
    rows: Iterable[ReceiptRow],
    never_added: Iterable[tuple[str, int]],
    unopened: Mapping[tuple[str, str], str],
    tasks: Mapping[str, str],
) -> tuple[ReceiptRow, ...]:
    """The rows of a receipt, with the reason of those that could not become complete.

    Args:
        never_added: the workers that nobody could reach, by group and rank.
        unopened: why a window is not open that should be, by the worker's name and the window's
            label.
        tasks: how far those came that say their steps themselves, by the worker's name.
    """
    names = {f"{group}-{rank}" for group, rank in never_added}

    def explain(row: ReceiptRow) -> ReceiptRow:
        why = NEVER_ADDED if row.worker in names and row.state != "complete" else ""
        if row.cause in (Reason.NEVER_OPENED, Reason.NEVER_USED):
            why = why or unopened.get((row.worker, row.window), "")
        if row.cause is Reason.NEVER_OPENED:
            why = why or tasks.get(row.worker, "")
        return row.add_detail(why) if why else row

    return tuple(explain(row) for row in rows)


def of_tasks(records: Iterable[NodeRecord], tasks: Container[tuple[str, int]]) -> dict[str, str]:
    """How far the steps of tasks came, by their names.

    Where one has several processes, the highest step counts.
    """
    last: dict[str, int | None] = {}
    for start in (start for record in records for start in record.starts):
        if (start.group, start.rank) in tasks and start.session is not None:
            name, step = f"{start.group}-{start.rank}", start.session["step"]
            last[name] = max(
                (known for known in (last.get(name), step) if known is not None), default=None
            )
    return {name: how_far(step) for name, step in last.items()}

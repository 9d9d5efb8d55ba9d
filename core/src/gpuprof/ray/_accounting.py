"""Accounts for a run's files and workers on each node of the cluster, dead nodes included."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import attrs
import ray

from gpuprof._artifacts.collect import LONG, Collection
from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import ReceiptRow, how_far
from gpuprof._artifacts.records import NodeRecord
from gpuprof._artifacts.settle import settle_node
from gpuprof._config.schema import Config
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof.ray._mistakes import NOT_REGISTERED
from gpuprof.ray._nodes import Nodes

Key = tuple[str, int]
Plan = Mapping[Key, PlannedWorker]


def settle_nodes(
    nodes: Nodes, planner: Planner, plan: Plan, collection: Collection, give_up: bool
) -> tuple[list[NodeRecord], list[str]]:
    """Settle the files of ended workers on every node.

    Returns:
        The record of each node, including those of dead nodes that can be read here; and a message
        for each node that died or did not answer.
    """
    records, faults = _settled(nodes, planner, plan, give_up)
    dead_nodes = nodes.lost()
    # On a shared file system a dead node's files are still readable here. A staging directory is
    # local.
    readable_nodes = [
        node
        for node in dead_nodes
        if os.path.isdir(os.path.join(planner.output_dir, planner.run, node))
    ]
    if planner.config.staging_dir is None:
        records += [settle_node(planner, plan, True, node) for node in readable_nodes]
    faults += [
        f"{node}: the node died; files that were only on its disk are lost" for node in dead_nodes
    ]
    return [collection.add_sizes(record) for record in records], faults


def actors_on_dead_nodes(nodes: Nodes, handles: Mapping[Key, Any]) -> dict[str, str]:
    """For each actor that was on a dead node, the name of that node, by the worker's name."""
    dead_nodes = nodes.lost()
    places = {key: nodes.of_actor(handle) for key, handle in handles.items()} if dead_nodes else {}
    return {
        f"{group}-{rank}": place for (group, rank), place in places.items() if place in dead_nodes
    }


def _settled(
    nodes: Nodes, planner: Planner, plan: Plan, give_up: bool
) -> tuple[list[NodeRecord], list[str]]:
    """The record of each node, and a message for each living node that did not answer."""
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
        f"{node}: did not answer; its files are not in this receipt" for node in sorted(living)
    ]


def _settle(config: Config, run: str, output_dir: str, plan: Plan, give_up: bool) -> NodeRecord:
    """Settle a node's files and return its record. Runs on that node."""
    return settle_node(Planner(config, run, output_dir), plan, give_up)


def explainer(
    unregistered_actors: Iterable[Key],
    problems: Mapping[tuple[str, str], str],
    tasks: Mapping[str, str],
    on_dead_nodes: Mapping[str, str],
) -> Callable[[ReceiptRow], ReceiptRow]:
    """Return a function that adds what the driver knows to a row of the receipt.

    Args:
        unregistered_actors: the actors that were never passed to `profiler.add`.
        problems: why a window was not opened, by the worker's name and the window's label.
        tasks: how far each worker got that counts its own steps, by the worker's name.
        on_dead_nodes: the name of the dead node, by the names of the workers that were on it.
    """
    names = {f"{group}-{rank}" for group, rank in unregistered_actors}

    def explain(row: ReceiptRow) -> ReceiptRow:
        if row.worker in on_dead_nodes and row.state != "complete":
            node = on_dead_nodes[row.worker]
            row = attrs.evolve(row, node=node, cause=Reason.NODE_DIED, detail=node)
        why = NOT_REGISTERED if row.worker in names and row.state != "complete" else ""
        if row.cause in (Reason.NEVER_OPENED, Reason.NEVER_USED):
            why = why or problems.get((row.worker, row.window), "")
        if row.cause is Reason.NEVER_OPENED:
            why = why or tasks.get(row.worker, "")
        return row.add_detail(why) if why else row

    return explain


def last_steps(records: Iterable[NodeRecord], tasks: Container[Key]) -> dict[str, str]:
    """How far each task got, by the worker's name.

    Of several processes of a task, the one with the highest step counts.
    """
    last: dict[str, int | None] = {}
    for start in (start for record in records for start in record.starts):
        if (start.group, start.rank) in tasks and start.session is not None:
            name, step = f"{start.group}-{start.rank}", start.session["step"]
            last[name] = max(
                (value for value in (last.get(name), step) if value is not None), default=None
            )
    return {name: how_far(step) for name, step in last.items()}

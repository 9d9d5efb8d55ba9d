"""Why workers have ended: Ray's records tell workers that the job ended from crashed ones."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import attrs

from gpuprof._artifacts import close
from gpuprof._artifacts.early_ends import Ended
from gpuprof.ray._nodes import Nodes

Process = tuple[str | None, int]
"""A node's name and a process id there."""
_PATIENCE = 20.0
"""Seconds to wait for Ray to record the end of a process that has just ended."""


def ended_by_job(nodes: Nodes, ends: Sequence[Ended]) -> list[Ended]:
    """The workers among `ends` that the job itself ended, for example with `ray.kill`.

    This does not include actors that Ray ended because their owner crashed.
    """
    # Ray's tables are not a public API; if they fail, each end counts as a crash
    with contextlib.suppress(Exception):
        dead_nodes = nodes.lost()
        processes = {(end.node, end.start.pid) for end in ends if end.node not in dead_nodes}
        if processes:
            by_job = _ended_by_job(nodes, processes)
            return [end for end in ends if (end.node, end.start.pid) in by_job]
    return []


@attrs.frozen
class _Exit:
    process: Process
    over: bool
    intended: bool


@attrs.frozen
class _Actors:
    """Ids of workers.

    Args:
        owners: the owner of each actor that Ray ended because its owner had died.
        alive: those of actors that have not ended, as far as Ray knows.
    """

    owners: dict[bytes, bytes] = attrs.field(factory=dict)
    alive: set[bytes] = attrs.field(factory=set)


def _ended_by_job(nodes: Nodes, processes: set[tuple[str, int]]) -> set[Process]:
    def look(_: object = None) -> tuple[dict[bytes, _Exit], _Actors]:
        return _exits(nodes), _actors()

    def is_missing(result: tuple[dict[bytes, _Exit], _Actors]) -> bool:
        """Whether Ray has yet to record the end of a process, its actor, or that one's owner."""
        exits, actors = result
        dead = set(actors.owners.values())
        return any(
            (e.process in processes and (not e.over or worker in actors.alive))
            or (worker in dead and not e.over)
            for worker, e in exits.items()
        )

    exits, actors = close.wait(look(), look, is_missing, _PATIENCE, pause=0.1)
    owners = actors.owners

    def by_job(worker: bytes) -> bool:
        # if the owner died, its end decides: on a busy machine Ray may call this end an error
        if worker in owners:
            return by_job(owners[worker])
        return worker in exits and exits[worker].intended

    # if a process id was used again, all processes that had it must have been ended by the job
    crashes = {end.process for worker, end in exits.items() if not by_job(worker)}
    return {end.process for end in exits.values()} - crashes


def _exits(nodes: Nodes) -> dict[bytes, _Exit]:
    """How each worker process ended, by Ray's id of the worker."""
    # the public ray.util.state needs the dashboard, which few clusters run
    from ray._private.state import state
    from ray.core.generated.common_pb2 import INTENDED_SYSTEM_EXIT, INTENDED_USER_EXIT
    from ray.core.generated.gcs_pb2 import WorkerTableData

    exits = {}
    for entry in state._connect_and_get_accessor().get_worker_table():
        worker = WorkerTableData.FromString(entry)
        exits[worker.worker_address.worker_id] = _Exit(
            (nodes.seen(worker.worker_address.node_id.hex()), worker.pid),
            not worker.is_alive,
            not worker.is_alive and worker.exit_type in (INTENDED_SYSTEM_EXIT, INTENDED_USER_EXIT),
        )
    return exits


def _actors() -> _Actors:
    from ray._private.state import state
    from ray.core.generated.common_pb2 import ActorDiedErrorContext
    from ray.core.generated.gcs_pb2 import ActorTableData

    actors = _Actors()
    for entry in state._connect_and_get_accessor().get_actor_table(None, None):
        actor = ActorTableData.FromString(entry)
        if actor.state == ActorTableData.ALIVE:
            actors.alive.add(actor.address.worker_id)
        death = actor.death_cause.actor_died_error_context
        if death.reason == ActorDiedErrorContext.OWNER_DIED:
            actors.owners[actor.address.worker_id] = actor.owner_address.worker_id
    return actors

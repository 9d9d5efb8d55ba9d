"""Actors that were started with our options and never given to `Profiler.add`: nobody can open their windows, or end them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from typing import Any

import ray

from gpuprof import _shim
from gpuprof._log import log
from gpuprof._plan import PlannedWorker

Key = tuple[str, int]
NEVER_ADDED = "the actor was never made known by profiler.add"


class Unadded:
    """The workers of a run that were planned and, so far, not added. Tasks never are: which of them are actors, Ray is asked.

    Attributes:
        first: the first step of the earliest window of any of them, infinite where there is none; those told of are left out.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._starts: dict[Key, int] = {}
        self.first = float("inf")

    def plan(self, key: Key, planned: PlannedWorker) -> None:
        """Take a worker, if it is to have windows."""
        starts = [window.start for window in planned.worker.windows if window.start is not None]
        if planned.profiled and starts:
            self._starts[key] = min(starts)
            self.first = min(self.first, *starts)

    def add(self, key: Key) -> None:
        """It was added."""
        self._starts.pop(key, None)
        self.first = min(self._starts.values(), default=float("inf"))

    def warn(self, step: int) -> None:
        """Say of which actors no window is opened from now on. Each is looked at once: Ray's table may be long."""
        due = {key for key, start in self._starts.items() if start <= step}
        for key in due:
            self.add(key)
        names = [f"{group}-{rank}" for group, rank in sorted(self.actors(due))]
        if names:
            log().warning("%s: %s, so no window is opened on it (step %d)", ", ".join(names), NEVER_ADDED, step)

    def actors(self, keys: Collection[Key], alive: bool = False) -> set[Key]:
        """Those of some workers that are actors of this process.

        Args:
            alive: only those that have not ended.
        """
        found: set[Key] = set()
        with contextlib.suppress(Exception):  # of tables that are not Ray's public interface: what cannot be read is not known
            found.update(key for key in (_started_here(self._run, alive) if keys else ()) if key in keys)
        return found


def _started_here(run: str, alive: bool) -> Iterator[Key]:
    """The workers of a run that are actors which this process has started, by what their runtime environment says.

    Those that a worker has started inherit its environment, and are nobody's to add.
    """
    if not ray.is_initialized():
        return
    from ray._private.state import state  # the public ray.util.state needs the dashboard, which few clusters run
    from ray.core.generated.gcs_pb2 import ActorTableData

    me = ray.get_runtime_context().get_worker_id()
    for entry in state._connect_and_get_accessor().get_actor_table(None, None):
        actor = ActorTableData.FromString(entry)
        if actor.owner_address.worker_id.hex() == me and not (alive and actor.state == ActorTableData.DEAD):
            row = _row(actor.serialized_runtime_env)
            if row.get("run") == run:
                yield row["group"], row["rank"]


def _row(runtime_env: str) -> dict[str, Any]:
    value = (json.loads(runtime_env or "{}").get("env_vars") or {}).get(_shim.VARIABLE)
    return _shim.decode(value) if value else {}

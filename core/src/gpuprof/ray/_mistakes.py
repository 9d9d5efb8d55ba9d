"""Warnings about likely mistakes: unmatched names; actors not wrapped, not added, or late."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import ray

from gpuprof._artifacts.receipt import Receipt
from gpuprof._log import log
from gpuprof._plan.advice import oversights
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.row import VARIABLE, Row, decode
from gpuprof.errors import ConfigError, GpuprofError


class Oversights:
    """Logs each mistake once, at the first step: the receipt may come hours later.

    Attributes:
        due: whether there may be something to log.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._unplanned: list[str] = []
        self._logged: set[str] = set()
        self.due = True

    def add_unplanned(self, group: str, rank: int) -> None:
        """Take an actor that was added without being started with `worker_options`.

        Only one that would have been profiled matters.
        """
        with contextlib.suppress(GpuprofError):
            if self._planner.worker(group, rank).profiled:
                self._unplanned.append(f"{group}-{rank}")
                self.due = True

    def warn(self, rows: Sequence[PlannedWorker]) -> None:
        """Log what has not been logged yet.

        Args:
            rows: the workers planned so far.
        """
        self.due = False
        for sentence in [*oversights(self._planner.config, rows), *self._of_unplanned()]:
            if sentence not in self._logged:
                self._logged.add(sentence)
                log().warning("%s", sentence)

    def faults(self, rows: Sequence[PlannedWorker]) -> list[str]:
        """The mistakes for the receipt.

        Names that no worker has only if nobody was profiled: a file may serve many jobs.
        """
        unmatched = (
            [] if any(row.profiled for row in rows) else oversights(self._planner.config, rows)
        )
        return [*unmatched, *self._of_unplanned()]

    def _of_unplanned(self) -> list[str]:
        names = ", ".join(self._unplanned)
        return (
            [
                (
                    f"{names}: not started with worker_options of this Profiler, so nothing of it "
                    "is "
                    "captured"
                )
            ]
            if names
            else []
        )


Key = tuple[str, int]
NEVER_ADDED = "the actor was never made known by profiler.add"


class Unadded:
    """The workers of a run that were planned and not added so far.

    Tasks are never added, so Ray is asked which of the workers are actors.

    Attributes:
        first: the first step of their earliest window, infinite if there is none; workers with a
            warning no longer count.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._starts: dict[Key, int] = {}
        self.first = float("inf")

    def plan(self, key: Key, planned: PlannedWorker) -> None:
        """Take a worker that has windows."""
        starts = [window.start for window in planned.worker.windows if window.start is not None]
        if planned.profiled and starts:
            self._starts[key] = min(starts)
            self.first = min(self.first, *starts)

    def add(self, key: Key) -> None:
        """Forget a worker that was added."""
        self._starts.pop(key, None)
        self.first = min(self._starts.values(), default=float("inf"))

    def warn(self, step: int) -> None:
        """Warn of actors whose first window is lost at this step.

        Each is looked up once, as Ray's table may be long.
        """
        due = {key for key, start in self._starts.items() if start <= step}
        for key in due:
            self.add(key)
        names = [f"{group}-{rank}" for group, rank in sorted(self.actors(due))]
        if names:
            log().warning(
                "%s: %s, so no window is opened on it (step %d)",
                ", ".join(names),
                NEVER_ADDED,
                step,
            )

    def actors(self, keys: Collection[Key], alive: bool = False) -> set[Key]:
        """The workers among `keys` that are actors of this process.

        Args:
            alive: only those that have not ended.
        """
        found: set[Key] = set()
        # these tables are not public; without them no actor is known
        with contextlib.suppress(Exception):
            found.update(
                key for key in (_started_here(self._run, alive) if keys else ()) if key in keys
            )
        return found


def _started_here(run: str, alive: bool) -> Iterator[Key]:
    """The workers of a run that are actors of this process, by their runtime environment.

    Actors that a worker started inherit its environment, and need no `profiler.add`.
    """
    if not ray.is_initialized():
        return
    # the public ray.util.state needs the dashboard, which few clusters run
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import ActorTableData

    me = ray.get_runtime_context().get_worker_id()
    for entry in state._connect_and_get_accessor().get_actor_table(None, None):
        actor = ActorTableData.FromString(entry)
        if actor.owner_address.worker_id.hex() == me and not (
            alive and actor.state == ActorTableData.DEAD
        ):
            row = _row_of(actor.serialized_runtime_env)
            if row is not None and row["run"] == run:
                yield row["group"], row["rank"]


def _row_of(runtime_env: str) -> Row | None:
    value = (json.loads(runtime_env or "{}").get("env_vars") or {}).get(VARIABLE)
    return decode(value) if value else None


_GRACE = 2.0
"""Seconds that an actor has to die: after `ray.kill` it can answer for a moment."""


def refuse(group: str, rank: int, first: Any) -> None:
    """Refuse a second actor of a rank while the first one lives.

    Args:
        first: the actor that was added before, or `None`.

    Raises:
        ConfigError: the first one lives.
    """
    if first is not None and not _has_died(first):
        raise ConfigError(
            [f"{group}-{rank}: an actor of this group and rank was added before, and lives"]
        )


def _has_died(actor: Any) -> bool:
    until = time.monotonic() + _GRACE
    while (left := until - time.monotonic()) > 0:
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=left)
            time.sleep(0.1)
        except ray.exceptions.ActorUnavailableError:
            return False  # it is restarted
        except ray.exceptions.RayActorError:
            return True
        except ray.exceptions.RayError:
            return False  # it is busy
    return False


def too_late(receipt: Receipt | None, worker: str) -> bool:
    """Whether the run has ended, so that a new worker runs without gpuprof.

    Logs a warning if the run profiled anything.

    Args:
        receipt: of the run, once it ends.
        worker: its name.
    """
    if receipt is not None and receipt.directory is not None:
        log().warning(
            "%s: is not profiled: the run has ended; use it inside `with Profiler(...)`, or before "
            "finalize",
            worker,
        )
    return receipt is not None

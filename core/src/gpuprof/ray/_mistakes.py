"""Detects likely user errors: unmatched names; actors not wrapped, not added, or late."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import ray

from gpuprof._artifacts.early_ends import listed
from gpuprof._artifacts.receipt import Receipt
from gpuprof._config.selection import matches
from gpuprof._log import log
from gpuprof._plan.advice import oversights
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.row import VARIABLE, Row, decode
from gpuprof.errors import ConfigError, GpuprofError

Key = tuple[str, int]

_NEXT = float("-inf")
"""Stands for the first step of a worker without windows, so that the next step looks for it."""
_LOOKS = 3
"""How many steps look for an actor in Ray's table when they begin. The number is limited because
the table may be long, and a task is never in it."""


class MistakeLog:
    """Warns about each mistake once, as early as the first step: the receipt may be hours away."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._unwrapped: list[str] = []
        self._logged: set[str] = set()
        self.due = True

    def note_added(self, group: str, rank: int, is_planned: bool) -> None:
        """Note an actor that was added.

        Args:
            is_planned: whether `worker_options` was called for the actor's group and rank. If not,
                that is a mistake, unless the actor would not be profiled anyway.
        """
        self.due = True
        if not is_planned:
            with contextlib.suppress(GpuprofError):
                if self._planner.worker(group, rank).profiled:
                    self._unwrapped.append(f"{group}-{rank}")

    def warn(self, rows: Sequence[PlannedWorker]) -> None:
        """Log new warnings."""
        self.due = False
        for sentence in [*oversights(self._planner.config, rows), *self._of_actors()]:
            if sentence not in self._logged:
                self._logged.add(sentence)
                log().warning("%s", sentence)

    def faults(self, rows: Sequence[PlannedWorker]) -> list[str]:
        """The mistakes for the receipt.

        Unmatched names count only if no worker was selected: one file may serve many jobs.
        """
        config = self._planner.config
        any_selected = any(
            matches(row.worker.group, config.worker_groups)
            if config.backend == "none"
            else row.profiled
            for row in rows
        )
        return [*([] if any_selected else oversights(config, rows)), *self._of_actors()]

    def _of_actors(self) -> list[str]:
        names = ", ".join(self._unwrapped)
        return [f"{names}: not captured: start each actor with profiler.start"] if names else []


NOT_REGISTERED = "the actor was not registered; call profiler.add"
_WITHOUT_WINDOW = (
    f"{NOT_REGISTERED}: without it the last seconds may be missing from tree and ledger, and the "
    "clock of another node is not compared"
)


class UnregisteredActors:
    """Planned workers that have not been registered with `profiler.add`.

    Tasks are never registered. Ray's actor table tells which of these workers are actors.

    Attributes:
        first: the earliest step at which to warn about one of these workers. For a worker with
            windows this is the first step of its first window, and for any other the next step.
            Infinite if there are no such workers.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._starts: dict[Key, float] = {}
        self._looks: dict[Key, int] = {}
        self.first = float("inf")

    def expect(self, key: Key, worker_plan: PlannedWorker, is_selected: bool) -> None:
        """Expect a worker to be registered before its first window.

        Args:
            is_selected: whether to expect the worker even if it has no window.
        """
        starts = [window.start for window in worker_plan.worker.windows if window.start is not None]
        if worker_plan.profiled and starts:
            self._starts[key] = min(starts)
        elif is_selected:
            self._starts[key] = _NEXT
            self._looks[key] = _LOOKS
        self.first = min(self.first, self._starts.get(key, float("inf")))

    def remove(self, key: Key) -> None:
        """Forget a worker, because it has registered or has already been warned about."""
        self._starts.pop(key, None)
        self.first = min(self._starts.values(), default=float("inf"))

    def warn(self, step: int) -> None:
        """Warn about unregistered actors whose first window begins at this step.

        Looks each worker up in Ray's actor table once, as the table may be long. A worker without a
        window is looked up several times, as its actor may appear in the table only after the job
        has its handle.
        """
        due = {key: start for key, start in self._starts.items() if start <= step}
        for key in due:
            self.remove(key)
        actors = sorted(self.actors(due))
        late = [f"{group}-{rank}" for group, rank in actors if due[group, rank] > _NEXT]
        if late:
            log().warning(
                "%s: its windows are not opened (step %d): %s",
                ", ".join(late),
                step,
                NOT_REGISTERED,
            )
        for sentence in self.sentences(key for key in actors if due[key] == _NEXT):
            log().warning("%s", sentence)
        for key in due.keys() - actors:
            self._looks[key] = self._looks.get(key, 1) - 1
            if self._looks[key] > 0:
                self._starts[key] = self.first = _NEXT

    @staticmethod
    def sentences(keys: Iterable[Key]) -> list[str]:
        """The warning about unregistered actors without windows, if there are any."""
        names = [f"{group}-{rank}" for group, rank in sorted(keys)]
        return [f"{listed(names)}: {_WITHOUT_WINDOW}"] if names else []

    def actors(self, keys: Collection[Key], alive: bool = False) -> set[Key]:
        """The workers among `keys` that are actors started by this process."""
        own_keys: set[Key] = set()
        # Ray's actor table is not a public API; if it fails, report no actors
        with contextlib.suppress(Exception):
            own_keys.update(
                key
                for key in (_actors_started_here(self._run, alive) if keys else ())
                if key in keys
            )
        return own_keys


def _actors_started_here(run: str, alive: bool) -> Iterator[Key]:
    """The group and rank of each actor of the run that this process started.

    The runtime environment tells the run, group and rank of an actor. Skips actors started by a
    worker: they inherit the worker's environment and need no `profiler.add`.
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
"""Seconds to wait for an actor to die, since it may still answer just after `ray.kill`."""


def reject_other_than_handle(group: str, rank: int, handle: object) -> None:
    """Reject a handle that is not an actor's.

    Raises:
        ConfigError: `handle` is something else, such as ``None`` from a function without a return.
    """
    if not hasattr(handle, "_actor_id"):  # no class check: Ray Client's handles have another class
        raise ConfigError(
            f"{group}-{rank}: expected an actor's handle, got {type(handle).__name__}; return "
            "the result of Actor.remote(...); a task needs only worker_options"
        )


def reject_duplicate(group: str, rank: int, first: Any) -> None:
    """Reject a second actor for a rank while the first one is alive."""
    if first is not None and not _has_died(first):
        raise ConfigError(
            f"{group}-{rank}: an actor of this group and rank is still running; give each "
            "actor its own rank"
        )


def _has_died(actor: Any) -> bool:
    until = time.monotonic() + _GRACE
    while (seconds := until - time.monotonic()) > 0:
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=seconds)
            time.sleep(0.1)
        except ray.exceptions.ActorUnavailableError:
            return False  # restarting
        except ray.exceptions.RayActorError:
            return True
        except ray.exceptions.RayError:
            return False  # busy
    return False


def run_has_ended(receipt: Receipt | None, worker: str) -> bool:
    """Whether the run has ended, so that a worker that starts now is not profiled.

    Logs a warning if the run had profiling on.
    """
    if receipt is not None and receipt.directory is not None:
        log().warning(
            "%s: not profiled: the run has ended; start workers inside `with Profiler(...)`, or "
            "before finalize",
            worker,
        )
    return receipt is not None

"""A run that one process begins and another drives, such as a framework's controller.

The process that begins the run has a `Starter`: it starts the driving process and waits for it. The
driving process makes the workers and counts the steps, with a `Joined` profiler. At the end, the
`Joined` profiler hands its part over to the `Starter`, which brings the files home, writes the
manifest and prints.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import ray

from gpuprof._artifacts import close, runs
from gpuprof._artifacts.collect import Collection
from gpuprof._artifacts.early_ends import Ended
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import NodeRecord, read_node
from gpuprof._config.schema import Config
from gpuprof._log import log
from gpuprof._plan.advice import unmatched_names
from gpuprof._plan.worker import PlannedWorker
from gpuprof._report import printing
from gpuprof._session import public
from gpuprof._session.file import TreeEntry
from gpuprof._session.ledger import DRIVES, LedgerWriter
from gpuprof._session.session import Session
from gpuprof.errors import OutputError
from gpuprof.ray import _announced, _parts
from gpuprof.ray._parts import Part
from gpuprof.ray._planning import Planning
from gpuprof.ray._profiler import Profiler, RunnerTree, has_windows

TASKS = "Tasks"
"""The group of the processes that run a job's tasks."""


def driving_session() -> Session | None:
    """The session of this process, if a `Starter` has started it directly or indirectly.

    Otherwise ``None``.
    """
    session = public.session()
    return session if session is not None and session.row.get("drives") else None


class Starter(Profiler):
    """Begins and ends a run that another process drives. Its only worker is that process."""

    _starts_driver = True

    @functools.cached_property
    def _others(self) -> Sequence[Part]:
        return _parts.take(self.run) if ray.is_initialized() else ()

    def _begin_ledger(self) -> LedgerWriter | None:
        """Begin no ledger, because this process only waits."""
        return None

    def _profiled(self) -> dict[tuple[str, int], PlannedWorker]:
        """Add the workers that no part accounts for: a killed driver leaves no part."""
        worker_plans = close.plan_of(self._planner, self._nodes.on_each(read_node, self._away))
        keys_of_others = _keys(self._others)
        orphans = {
            key: worker_plan
            for key, worker_plan in worker_plans.items()
            if key not in keys_of_others
        }
        return orphans | super()._profiled()

    def _file(
        self, directory: str, runner: TreeEntry, records: list[NodeRecord], *parts: Part
    ) -> Receipt:
        keys_of_others = _keys(self._others)

        def orphans(ends: Sequence[Ended]) -> list[Ended]:
            return [e for e in ends if (e.start.group, e.start.rank) not in keys_of_others]

        own = [
            attrs.evolve(
                part,
                ended_early=orphans(part.ended_early),
                ended_by_job=orphans(part.ended_by_job),
            )
            for part in parts
        ]
        return super()._file(directory, runner, records, *self._others, *own)


class _InSession(Profiler):
    """Drives a run that began before this process. The process is itself a worker of the run."""

    def _placed(self, config: Config) -> Config:
        """Use the directories of the run: relative paths may mean other directories here."""
        row = self._session.row
        final, working = os.path.dirname(row["run_directory"]), row["output_dir"]
        staging = None if working == final else working
        return attrs.evolve(config, output_dir=final, staging_dir=staging)

    @functools.cached_property
    def _session(self) -> Session:
        session = public.session()
        assert session is not None
        return session

    def _name(self) -> str:
        return self._session.row["run"]

    def _begin_tree(self) -> RunnerTree:
        return RunnerTree(self.timing, self._session.left_out)

    def _begin_ledger(self) -> LedgerWriter | None:
        ledger = self._session.ledger
        if ledger is not None:
            ledger.event(DRIVES)
        return ledger


class Joined(_InSession):
    """Drives a run that a `Starter` has begun."""

    def _begin_files(self, directory: str) -> Collection:
        """Write nothing: the `Starter` has written the run's beginning, and brings files home."""
        os.makedirs(directory, exist_ok=True)  # on another node
        return Collection(self._nodes, self._away, directory, enabled=False)

    def _expect_end(self) -> None:
        """Do nothing: the `Starter` expects the end."""

    def _file(
        self, directory: str, runner: TreeEntry, records: list[NodeRecord], *parts: Part
    ) -> Receipt:
        name = "" if self._ledger is None else Path(self._ledger.path).stem
        for part in parts:
            _parts.leave(self.run, attrs.evolve(part, ledger=name))
        return parts[-1].receipt

    def _print(self, trees: printing.Trees, runner: TreeEntry) -> None:
        """Print nothing: the `Starter` prints everything about the run."""


class Launched(_InSession):
    """Drives the workers of an unmodified job that `gpuprof run` has started.

    Args:
        settings: the settings given to `gpuprof run`: ``source``, ``system``, ``overrides``,
            ``defaults``.
    """

    _earlier: ClassVar[list[Part]] = []
    """The parts from the ends of the clusters that the job has used before."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._defaults = settings["defaults"]
        super().__init__(
            settings["source"], system=settings["system"], overrides=settings["overrides"]
        )

    def _placed(self, config: Config) -> Config:
        return super()._placed(config).recording()

    def _begin_ledger(self) -> LedgerWriter | None:
        ledger = self._session.ledger
        if ledger is not None:
            ledger.event(DRIVES, name="Runner")
        return ledger

    def _begin_tree(self) -> RunnerTree:
        self._planner.library_steps = True
        self._session.row["print_tree"] = False  # the run's end prints it
        self._session.drives = True
        return super()._begin_tree()

    def _print(self, trees: printing.Trees, runner: TreeEntry) -> None:
        own = self._session.row["group"], self._session.row["rank"]
        super()._print({key: tree for key, tree in trees.items() if key != own}, runner)

    def _begin_files(self, directory: str) -> Collection:
        """Read the run's beginning, which `gpuprof run` has written."""
        about = runs.about(directory)
        if about is None or about.beginning is None:
            raise OutputError(f"{directory}: run.json is not there any more")
        self._beginning = about.beginning
        return Collection(self._nodes, self._away, directory, self.config.collect == "driver")

    def _file(
        self, directory: str, runner: TreeEntry, records: list[NodeRecord], *parts: Part
    ) -> Receipt:
        earlier_ends = {
            (end.node, end.start.name, end.start.incarnation)
            for part in self._earlier
            for end in (*part.ended_early, *part.ended_by_job)
        }

        def new(ends: Sequence[Ended]) -> list[Ended]:
            return [
                e for e in ends if (e.node, e.start.name, e.start.incarnation) not in earlier_ends
            ]

        self._earlier.extend(
            attrs.evolve(
                part, ended_early=new(part.ended_early), ended_by_job=new(part.ended_by_job)
            )
            for part in parts
        )
        return super()._file(directory, runner, records, *self._earlier)

    def _end_ledger(self) -> None:
        """Only drain the ledger, because the job may start Ray again."""
        if self._ledger is not None:
            self._ledger.drain()

    @property
    def _planning(self) -> Planning:
        return attrs.evolve(super()._planning, tasks=self.config.recorded_as(TASKS))

    def announce(self) -> None:
        """Leave in Ray's store what workers need to find the driver by themselves."""
        if self.directory is None:
            return
        self._preflight.look_for_tool()  # on the other nodes, too
        if self._windows is None:
            self._windows = self._control()
        address = self._windows.listen_to_all()
        _announced.announce(self.run, self._session.name, address, self._planning)
        _announced.note_class(self.run, TASKS)

    def group_of(self, name: str) -> str | None:
        """The group of an actor of the class `name`; ``None`` if such actors are not recorded."""
        _announced.note_class(self.run, name)
        return self.config.recorded_as(name)

    def tasks_runtime_env(self, runtime_env: Mapping[str, Any]) -> dict[str, Any]:
        """The job's runtime environment, extended so that its tasks are recorded or left out.

        The configuration decides whether tasks are recorded.
        """
        group = self.config.recorded_as(TASKS)
        if self.directory is None or group is not None:
            return self.job_runtime_env(runtime_env, group or TASKS)
        return self.leave_out(runtime_env)

    def leave_out(self, runtime_env: Mapping[str, Any]) -> dict[str, Any]:
        """The runtime environment of an unrecorded actor; the actors that it makes are recorded."""
        return self._planning.leave_out(runtime_env)

    def _begin_step(self, number: int) -> None:
        group = self._session.row["group"]
        is_captured = any(a <= number < b for a, b in self._planner.captured_steps(group))
        if is_captured or self._planner.is_armed(group):
            with self._guarded():
                self._plan_those_of_workers()
        super()._begin_step(number)

    def _end(self, timeout: float) -> None:
        if self.directory is not None and ray.is_initialized():
            with self._guarded():
                self._plan_those_of_workers()
                for sentence in unmatched_names(self.config, _announced.classes(self.run)):
                    log().warning("%s", sentence)
        super()._end(timeout)

    def _plan_those_of_workers(self) -> None:
        """Add the workers that other workers have started to the plan."""
        for worker_plan in _announced.noted_workers(self.run, self._plan):
            worker = worker_plan.worker
            self._plan[worker.group, worker.rank] = worker_plan
            self._by_themselves.add((worker.group, worker.rank))
            self._preflight.announce(worker_plan)
            if has_windows(worker_plan):
                self._expect_windows(worker_plan)

    def expect_no_handle(self, group: str, rank: int) -> None:
        """Do not expect a worker to be registered, because it connects by itself."""
        self._unregistered.remove((group, rank))
        self._by_themselves.add((group, rank))

    def flush(self) -> None:
        """Have the connected workers write what they have recorded, before one may be killed."""
        if self._windows is not None:
            self._windows.flush()


def _keys(parts: Sequence[Part]) -> set[tuple[str, int]]:
    return {(worker["group"], worker["rank"]) for part in parts for worker in part.workers}

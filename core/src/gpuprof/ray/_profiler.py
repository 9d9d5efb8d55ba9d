"""The `Profiler` of a Ray job."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import attrs
from gpuprof_timing import Timing

from gpuprof._artifacts import close, early_ends, manifest, runs
from gpuprof._artifacts.collect import Collection
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import NodeRecord, read_node
from gpuprof._artifacts.run_id import given_run_id, new_run_id
from gpuprof._config.load import load
from gpuprof._config.schema import Config
from gpuprof._config.selection import matches
from gpuprof._log import log
from gpuprof._plan.groups import check_name
from gpuprof._plan.planner import Planner, ledger_limits
from gpuprof._plan.worker import PlannedWorker
from gpuprof._report import printing
from gpuprof._report.trees import DRIVER, introduce
from gpuprof._session import companion, dump, instruments, public
from gpuprof._session.control import ControlThread
from gpuprof._session.dump import Answerer
from gpuprof._session.file import TotalsEntry, TreeEntry
from gpuprof._session.instruments.instrument import Hooks, Instrument
from gpuprof._session.ledger import DRAIN_INTERVAL, LAST_SECONDS, LedgerWriter, make_header
from gpuprof._session.left_out import LeftOut
from gpuprof._session.metrics import StepMetrics
from gpuprof._session.orders import make as make_orders
from gpuprof._session.patience import unhurried
from gpuprof._session.session import CLOSE_DEADLINE
from gpuprof._session.step_times import StepTimes
from gpuprof._session.totals import Totals
from gpuprof._shim.node import node_name
from gpuprof._shim.safe import make_directory
from gpuprof.errors import GpuprofError
from gpuprof.ray import _mistakes
from gpuprof.ray._accounting import (
    actors_on_dead_nodes,
    explainer,
    last_steps,
    settle_nodes,
)
from gpuprof.ray._ending import (
    IdleWorkers,
    all_trees,
    ask_for_trees,
    bring_home,
    finish_reports,
    interrupted_message,
    warn_not_finalized,
    worker_entries,
)
from gpuprof.ray._exits import ended_by_job
from gpuprof.ray._interrupts import Interrupts
from gpuprof.ray._metrics import RayGauges, Sink
from gpuprof.ray._mistakes import MistakeLog, UnregisteredActors
from gpuprof.ray._nodes import Nodes
from gpuprof.ray._parts import Part, together
from gpuprof.ray._planning import Planning
from gpuprof.ray._preflight import Preflight
from gpuprof.ray._stacks import OtherNodes
from gpuprof.ray._steps import Step, Steps
from gpuprof.ray._windows import Firing, WindowControl
from gpuprof.ray._wire import Measurement

Handle = TypeVar("Handle")


def note_clock(ledger: LedgerWriter, measurement: Measurement) -> None:
    """Write a measurement of another node's clock into the driver's ledger."""
    ledger.event("clock", **attrs.asdict(measurement))


class RunnerTree:
    """The process's own tree, with a scope around the run.

    Args:
        left_out: the `LeftOut` of the process's session, if the session writes the tree.
    """

    _another_has_ended: ClassVar[bool] = False

    def __init__(self, timing: Timing, left_out: LeftOut | None = None) -> None:
        if left_out is None:
            timing.name = "Runner profile"
            # The first run's tree includes what the process did before the run. A later run's tree
            # leaves out the earlier runs.
            before = timing.snapshot() if RunnerTree._another_has_ended else None
            left_out = LeftOut(timing, before)
        self.left_out = left_out
        self._main_loop = timing.add_time("main_loop")
        self._main_loop.__enter__()

    def end(self, totals: TotalsEntry | None) -> TreeEntry:
        """End the run, and return its trees."""
        self._main_loop.__exit__(None, None, None)
        RunnerTree._another_has_ended = True
        return self.left_out.entry("wait", totals=totals)


class Profiler:
    """Profiles the workers of a Ray job.

    Args:
        config: a YAML file, a mapping (OmegaConf included), or ``None`` for the file that
            ``GPUPROF_CONFIG`` names; without one, nothing is profiled. The configuration may be
            below the key ``profiling`` or ``cluster.profiling``. Trees are printed in any case.
        path: the mapping's place in a larger configuration, for messages.
        system: whose settings `config` holds: ``rlinf``, ``verl``, ``nemo-rl``; ``None``: gpuprof's
            own.
        overrides: ``key.key=value``, as on Hydra's command line. They override the environment,
            which overrides `config`.

    Raises:
        ConfigError: the configuration or ``GPUPROF_RUN`` is not valid.
        PluginError: the backend is not installed or broken.
        ToolError: the profiler's program is missing.
        OutputError: the output directory cannot be written.

    >>> with Profiler({"backend": "nsight", "enabled": False}) as profiler:
    ...     for number in range(3):
    ...         with profiler.step(number):
    ...             pass  # call the actors that profiler.start has started
    """

    _defaults: Mapping[str, Any] | None = None
    """Values for keys that nothing else sets."""
    _starts_driver = False
    """Whether a worker that this process starts makes the other workers and counts the steps."""

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        *,
        path: str = "",
        system: str | None = None,
        overrides: Sequence[str] = (),
    ) -> None:
        self.config = self._placed(
            load(config, path, system=system, overrides=overrides, defaults=self._defaults)
        )
        self.run = self._name()
        self._planner = Planner(self.config, self.run, self.config.working_dir)
        self._away = os.path.join(self.config.working_dir, self.run)
        self.directory = (
            None
            if self.config.selects_nothing
            else os.path.join(os.path.abspath(self.config.output_dir), self.run)
        )
        self._nodes = Nodes()
        self._preflight = Preflight(self._planner, self._nodes)
        if self.directory is not None:
            self._preflight.look_for_tool()
            try:
                with runs.beginning(self.config):
                    self._collection = self._begin_files(self.directory)
            except runs.NoPlace as error:
                if self.config.on_error == "raise":
                    raise
                log().warning("%s; the job goes on without profiling", error)
                self.directory = None
                self.config = attrs.evolve(self.config, enabled=False)
                self._planner = Planner(self.config, self.run, self.config.working_dir)
        self._plan: dict[tuple[str, int], PlannedWorker] = {}
        self._handles: dict[tuple[str, int], Any] = {}
        # workers that connect by themselves, so that this process needs no handle
        self._by_themselves: set[tuple[str, int]] = set()
        self._windows: WindowControl | None = None
        self._firing: Firing | None = None
        self._unregistered = UnregisteredActors(self.run)
        self._mistakes = MistakeLog(self._planner)
        self._problems: list[str] = []
        self._steps = Steps(self._begin_step, self._end_step)
        self._step_times = StepTimes()
        self._metrics = StepMetrics(self.directory)
        public.measure_with(self._metrics)
        self._sink: Sink | None = None
        self._totals = Totals()
        self._discrete = False
        self._off = False
        self._interrupted = False
        self._receipt: Receipt | None = None
        if self.directory is not None:
            self._reminder = partial(warn_not_finalized, self.directory, os.getpid())
            self._expect_end()
        self.timing = public.timing()
        self._drains: ControlThread | None = None
        self._ledger = self._begin_ledger()
        self._instruments = self._begin_instruments()
        self._runner_tree = self._begin_tree()
        self._answerer = self._begin_answerer()
        if self.directory is not None and self.config.capture_slow:
            companion.start(self.directory)
        if self.directory is not None and self.config.ray_metrics:
            self._metrics.begin()
            self._sink = Sink("ray_metrics", RayGauges(self.run).send)

    def _placed(self, config: Config) -> Config:
        """The configuration, adapted to this process."""
        for note in config.source.notes:
            log().warning("%s", note)
        return config

    def _name(self) -> str:
        """The run's id."""
        run_id = None if self.config.selects_nothing else given_run_id(os.environ)
        return run_id or new_run_id()

    def _begin_files(self, directory: str) -> Collection:
        """Write that the run begins, and return the `Collection` that will bring its files home."""
        self._beginning = runs.begin(directory, self.run, self.config, driven=True)
        return Collection(self._nodes, self._away, directory, self.config.collect == "driver")

    def _expect_end(self) -> None:
        """Have the exit warn if `finalize` was not called, and bring reports home until then."""
        atexit.register(self._reminder)
        if self.config.collect_every is not None:
            self._collection.every(
                self.config.collect_every, lambda: self._nodes.on_each(read_node, self._away)
            )

    def _begin_tree(self) -> RunnerTree:
        return RunnerTree(self.timing)

    def _begin_ledger(self) -> LedgerWriter | None:
        """The ledger of the driver's steps and scopes."""
        session = public.session()
        if session is not None and session.ledger is not None:
            return session.ledger
        if self.directory is None or not self.config.ledger.enabled:
            return None
        node = os.path.join(self.directory, node_name())
        header = make_header(self.run, "Runner", "Runner", 0, node_name(), None, "driver")
        ledger = LedgerWriter(
            os.path.join(node, "Runner.ledger"),
            header,
            ledger_limits(self.config),
            self._note,
            make_directory=partial(make_directory, node),
        )
        try:
            ledger.begin(self.timing.enabled)
        except RuntimeError as error:
            self._note(f"no ledger is written: {error}")
            return None

        self._drains = ControlThread(ledger.drain, DRAIN_INTERVAL)
        public.record_with(ledger)
        return ledger

    def _begin_instruments(self) -> list[Instrument]:
        """Record the driver's waits, unless the session of this process does."""
        session, ledger = public.session(), self._ledger
        if ledger is None or (session is not None and session.ledger is not None):
            return []
        hooks = Hooks(
            sent=ledger.sent, event=ledger.event, sized=ledger.sized, sample=ledger.samples.add
        )
        return instruments.begin(self.config.instruments or (), self.timing, self._note, hooks)

    def _begin_answerer(self) -> Answerer | None:
        """Answer `gpuprof stacks` for the driver."""
        about = {"name": "Runner", "group": "Runner", "rank": 0, "node": node_name()}
        session, silence = public.session(), self.config.watchdog
        if session is not None:
            session.answerer.identify_as(about)
            return session.answerer
        if self.directory is None:
            return None
        return Answerer(self.directory, "Runner.json", about, lambda: None, silence)

    @property
    def plan(self) -> list[PlannedWorker]:
        """The rows of all workers planned so far."""
        return list(self._plan.values())

    @property
    def ended(self) -> bool:
        """Whether `finalize` was called."""
        return self._receipt is not None

    def start(
        self,
        make: Callable[[dict[str, Any]], Handle],
        /,
        *,
        group: str,
        rank: int,
        **options: Any,
    ) -> Handle:
        """Start an actor as a worker of the run: plan it, call `make`, and register its handle.

        Without profiling, `make` gets `options` as they are. If it raises, the worker is not part
        of the run, and its rank is free again.

        Args:
            make: starts the actor with the options that it is given, and returns its handle.
            group: the worker group's name.
            rank: the rank in its group, from 0. The rank of an actor that has died can be started
                again.
            options: for Ray's `.options()`, such as `num_gpus` and `runtime_env`. `make` gets them
                with the worker's own settings merged into `runtime_env`. Pass `runtime_env` here,
                not to `@ray.remote`: Ray's `.options()` replaces it.

        Returns:
            What `make` returned.

        Raises:
            ConfigError: the group's keys are not valid, `runtime_env` already wraps the worker, the
                rank's actor is still running, or `make` returned no actor's handle.
            ToolError: a node that may get the worker lacks the profiler's program, or the program
                refuses the options.

        >>> learner = profiler.start(
        ...     lambda options: Learner.options(**options).remote(learning_rate),
        ...     group="Learner", rank=0, num_gpus=1,
        ... )  # doctest: +SKIP
        """
        worker_plan, options = self._prepare(group, rank, options)
        handle = make(options)
        if worker_plan is not None:
            _mistakes.reject_other_than_handle(group, rank, handle)
            self._plan[group, rank] = worker_plan
            self.add(handle, group=group, rank=rank)
        return handle

    def worker_options(self, *, group: str, rank: int, **options: Any) -> dict[str, Any]:
        """The options for `.options()` of a task, or of an actor that `start` cannot start.

        A task marks its own steps with `gpuprof.step`, or its whole life is captured. Calls with
        the same rank run in one process, one after the other; concurrent calls need different
        ranks. If a framework needs the options before it starts the actor, register the actor's
        handle with `add` afterwards.

        Args:
            group: the worker group's name.
            rank: the rank in its group, from 0.
            options: as for `start`; the result has them, with `runtime_env` merged.

        Raises:
            ConfigError: the group's keys are not valid, `runtime_env` already wraps the worker, or
                the rank's actor is still running.
            ToolError: a node that may get the worker lacks the profiler's program, or the program
                refuses the options.
        """
        worker_plan, options = self._prepare(group, rank, options)
        if worker_plan is not None:
            self._plan[group, rank] = worker_plan
            if self.directory is not None and (group, rank) not in self._handles:
                self._unregistered.expect(
                    (group, rank), worker_plan, self._expects_add(worker_plan)
                )
        return options

    def _prepare(
        self, group: str, rank: int, options: dict[str, Any]
    ) -> tuple[PlannedWorker | None, dict[str, Any]]:
        """Plan a worker and the options that start it, without recording it in the plan.

        Returns:
            The plan, or ``None`` if the run has ended; and the options.
        """
        if _mistakes.run_has_ended(self._receipt, f"{group}-{rank}"):
            return None, options
        _mistakes.reject_duplicate(group, rank, self._handles.get((group, rank)))
        if self.directory is not None:
            self._preflight.look_for_tool()  # on the other nodes, if Ray has started meanwhile
        planning = self._planning
        worker_plan = planning.worker(group, rank, options)
        if self.directory is None:
            return worker_plan, options
        self._preflight.try_out(worker_plan)  # before planning: the receipt misses no failed worker
        self._preflight.announce(worker_plan)
        worker_plan, runtime_env = planning.start(worker_plan, options.get("runtime_env") or {})
        return worker_plan, {**options, "runtime_env": runtime_env}

    @property
    def _planning(self) -> Planning:
        """The planning of workers, with the current knowledge of the nodes."""
        tools = self._preflight.tool, self._preflight.common_tool
        return Planning(self._planner, *tools, self._nodes.share_names, self._starts_driver)

    def _expects_add(self, worker_plan: PlannedWorker) -> bool:
        """Whether an unprofiled worker should be registered, because the run wants its ledger."""
        return (
            self._ledger is not None
            and not worker_plan.profiled
            and matches(worker_plan.worker.group, self.config.worker_groups)
        )

    def job_runtime_env(
        self, runtime_env: Mapping[str, Any] | None = None, group: str = "Worker"
    ) -> dict[str, Any]:
        """A `runtime_env` for `ray.init` that makes every process of the job leave its tree.

        For actors and tasks that a framework makes, out of reach of `start`. They are named
        ``Worker-0.child-<pid>``, and ``gpuprof report`` adds them up; workers of the run keep their
        names.

        Args:
            runtime_env: the job's own.
            group: the name of their group.

        Raises:
            ConfigError: `runtime_env` sets gpuprof's own variable.
        """
        if self.directory is None:
            return dict(runtime_env or {})
        return self._planning.job(runtime_env or {}, group)

    def add(self, handle: Any, *, group: str, rank: int) -> None:
        """Register an actor that was started with `worker_options`, as `start` does by itself.

        gpuprof then opens its windows, collects its tree and measures its clock. Also register an
        actor that is not profiled, so that its tree leaves out the steps in which others are
        captured.

        Raises:
            ConfigError: the rank's earlier actor is still running, or `handle` is no actor's.
        """
        check_name(group, rank)
        if _mistakes.run_has_ended(self._receipt, f"{group}-{rank}"):
            return
        _mistakes.reject_other_than_handle(group, rank, handle)
        _mistakes.reject_duplicate(group, rank, self._handles.get((group, rank)))
        self._handles[group, rank] = handle
        self._unregistered.remove((group, rank))
        worker_plan = self._plan.get((group, rank))
        self._mistakes.note_added(group, rank, is_planned=worker_plan is not None)
        opens_windows = worker_plan is not None and has_windows(worker_plan)
        with self._guarded():
            if (opens_windows or self._ledger is not None) and self._windows is None:
                self._windows = self._control()
                for key, earlier in self._handles.items():
                    if key != (group, rank):
                        self._windows.listen(f"{key[0]}-{key[1]}", earlier)
            if self._windows is None:
                return
            if worker_plan is None or not opens_windows:
                self._windows.listen(f"{group}-{rank}", handle)
                return
            self._expect_windows(worker_plan, handle)

    def _expect_windows(self, worker_plan: PlannedWorker, handle: Any = None) -> None:
        """Open a worker's windows from now on.

        Args:
            handle: the actor's handle; ``None`` if the worker connects by itself.
        """
        assert self._windows is not None
        worker = worker_plan.worker
        self._windows.add(worker.name, handle, worker.windows)
        self._discrete |= worker.discrete
        if not worker.windows:
            if self._firing is None:
                self._firing = Firing(make_orders(str(self.directory)), self._windows)
            self._firing.add(worker, self.config.selection(worker.group).continuous)

    def _control(self) -> WindowControl:
        """Make the control of the workers' windows, with the connections to the workers."""
        control = WindowControl(
            self._steps,
            self._runner_tree.left_out,
            None if self._ledger is None else partial(note_clock, self._ledger),
            in_thread=self._planner.starts_in_thread,
        )
        if self._answerer is not None:
            self._answerer.forward = OtherNodes(control.channel, self._nodes).ask
            dump.states["workers"] = control.channel.workers
        return control

    def step(self, number: int, /, **attributes: float) -> AbstractContextManager[None]:
        """One global step: opens the windows that begin with it and closes those that end with it.

        Makes no remote call for other steps.

        Args:
            number: of the step.
            attributes: numbers by any names, such as ``frames=512``. Those of all steps are added
                up, and shown with the driver's timing tree, with their rate.

        Raises:
            GpuprofError: with `on_error: raise`, when a window cannot be opened or closed.
        """
        step = Step(self._steps, number)
        if (not attributes and self._sink is None) or not isinstance(number, int):
            return self._totals.step(step, attributes) if attributes else step
        return self._totals.step(step, attributes, partial(self._keep_attributes, number))

    def _keep_attributes(self, number: int, attributes: Mapping[str, float]) -> None:
        if self._ledger is not None and attributes:
            self._ledger.attributes(number, attributes)
        self._metrics.attributes(number, attributes)
        if self._sink is not None:
            self._sink.put(self._metrics.latest())

    def finalize(self, timeout: float = CLOSE_DEADLINE) -> Receipt:
        """End the run: close windows, collect trees and reports, print. A second call does nothing.

        Ends profiled actors if their reports need it. The first Ctrl-C takes effect when all is
        done; a second one quits immediately, naming what is lost.

        Args:
            timeout: seconds to wait for the profilers to write their reports.
        """
        if self._receipt is None:
            self._receipt = Receipt((), self.directory)
            if self.directory is not None:
                atexit.unregister(self._reminder)
            interrupts = Interrupts(self._interrupted)
            try:
                with interrupts, unhurried():
                    self._end(timeout)
            except KeyboardInterrupt:
                if interrupts.twice:
                    log().warning("%s", interrupted_message(self._receipt, self.plan, self._away))
                raise
            finally:
                self._handles.clear()  # Ray ends an actor when nobody holds its handle
        return self._receipt

    def _end(self, timeout: float) -> None:
        fault: Exception | None = None
        if self._mistakes.due:  # there was no step
            self._mistakes.warn(self.plan)
        try:
            with self._guarded():
                if self._firing is not None:
                    self._firing.end()
                if self._windows is not None:
                    self._heed(self._windows.close_all())
                    if self._by_themselves:
                        self._windows.flush(last=True)
                    if self._answerer is not None:
                        self._answerer.forward = None
                        dump.states.pop("workers", None)
                    self._windows.end()
        except Exception as error:
            fault = error  # with `on_error: raise`; raised after the rest is done
        self._metrics.end()
        dropped = "" if self._sink is None else self._sink.end()
        if dropped:
            self._problems.append(dropped)
        runner = self._runner_tree.end(self._totals.entry())
        for instrument in self._instruments:
            instrument.end_marking()
        self._end_ledger()
        answers = ask_for_trees(self._handles)
        records: list[NodeRecord] = []
        if self.directory is not None:
            with self._guarded():
                self._receipt, records = self._finish(self.directory, runner, timeout)
        self._print(all_trees(answers, self._handles, records), runner)
        if fault is not None:
            raise fault

    def _print(self, trees: printing.Trees, runner: TreeEntry) -> None:
        """Print the trees, the receipt and the explanation of the steps."""
        # imports NumPy, which no job should wait for at its start
        from gpuprof._report.explain import print_verdict, quick_answer

        directory, receipt = self.directory, self._receipt
        explains = self.config.ledger.enabled
        answer = quick_answer(directory) if directory is not None and explains else None
        slow = answer.slow_workers if answer is not None else ()
        driver = printing.read_tree(runner, DRIVER)
        if not self._starts_driver:
            driver.renamed(introduce(driver.timing.name))
        printing.print_trees(trees, driver, self.config.print_trees, slow, directory)
        if directory is None or receipt is None:
            return
        if answer is None or receipt.rows or receipt.faults:  # else the verdict names the directory
            printing.print_receipt(receipt)
        if explains:
            print_verdict(directory, answer)

    def _end_ledger(self) -> None:
        if self._ledger is not None:
            self._ledger.end()
        if self._drains is not None:
            self._drains.end()
        if self._answerer is not None and public.session() is None:
            self._answerer.end()

    def _finish(
        self, directory: str, runner: TreeEntry, timeout: float
    ) -> tuple[Receipt, list[NodeRecord]]:
        profiled_workers = self._profiled()

        def look(give_up: bool) -> tuple[Receipt, list[NodeRecord]]:
            records, faults = settle_nodes(
                self._nodes, self._planner, profiled_workers, self._collection, give_up
            )
            dead = actors_on_dead_nodes(self._nodes, self._handles)
            if not ends:  # before any worker is ended here
                ends.append(early_ends.ended_early(records))
            self._receipt = close.make_receipt(
                self._planner,
                profiled_workers.values(),
                records,
                self._collection,
                (
                    *self._problems,
                    *self._mistakes.faults(self.plan),
                    *unadded_faults,
                    *order_faults,
                    *faults,
                ),
                str(self._step_times),
                self._windows.opened if self._windows is not None else {},
                explainer(unregistered_actors, missing, last_steps(records, others), dead),
            )
            return self._receipt, records

        ends: list[list[early_ends.Ended]] = []
        others = self._plan.keys() - self._handles.keys() - self._by_themselves
        unregistered_actors = self._unregistered.actors(others)
        unadded_faults = self._unregistered.sentences(
            key for key in unregistered_actors if self._expects_add(self._plan[key])
        )
        if self._ledger is not None and self._unregistered.actors(others, alive=True):
            time.sleep(LAST_SECONDS)  # they cannot be asked to write, so let them do it in time
        missing = self._windows.missing() if self._windows is not None and not self._off else {}
        order_faults = self._firing.faults() if self._firing is not None else []
        idle = IdleWorkers(self._nodes, self._away, others)

        wrapped_workers = [
            key for key, worker_plan in profiled_workers.items() if worker_plan.wrapped
        ]
        self._collection.stop()
        out_of_reach = partial(self._unregistered.actors, others, alive=True)
        actors_of_workers = self._by_themselves - self._handles.keys()
        receipt, records = finish_reports(
            look, wrapped_workers, self._handles, idle, out_of_reach, timeout, actors_of_workers
        )
        by_job = ended_by_job(self._nodes, ends[0])
        early = [end for end in ends[0] if end not in by_job]
        part = Part(receipt, worker_entries(self.plan), early, by_job)
        try:
            receipt = self._file(directory, runner, records, part)
        except OSError as error:
            fault = f"manifest.json cannot be written: {error}"
            self._note(fault)
            receipt = attrs.evolve(receipt, faults=(*receipt.faults, fault))
        return receipt, records

    def _profiled(self) -> dict[tuple[str, int], PlannedWorker]:
        """The profiled workers for which this process must account at the end of the run."""
        return {key: worker_plan for key, worker_plan in self._plan.items() if worker_plan.profiled}

    def _file(
        self, directory: str, runner: TreeEntry, records: list[NodeRecord], *parts: Part
    ) -> Receipt:
        """Bring the files home and write the manifest.

        Args:
            parts: the parts of the run; this process's part is the last.
        """
        receipt = together(parts)
        receipt, files = bring_home(self._collection, directory, runner, receipt, records)
        early, by_job = (
            [
                entry
                for part in parts
                for entry in early_ends.entries(directory, which(part), part.ledger)
            ]
            for which in (attrgetter("ended_early"), attrgetter("ended_by_job"))
        )
        sentences = early_ends.sentences(early)
        receipt = attrs.evolve(receipt, faults=(*receipt.faults, *sentences))
        manifest.write(
            directory,
            self.run,
            manifest.setup(self._beginning, records),
            receipt.to_dict(),
            manifest.entries(files, records),
            [worker for part in parts for worker in part.workers],
            early,
            by_job,
        )
        return receipt

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.finalize()

    @contextlib.contextmanager
    def _guarded(self) -> Any:
        """Turn a fault of gpuprof into a warning that profiling is off.

        With `on_error: raise`, the fault is raised instead.
        """
        try:
            yield
        except Exception as error:
            self._switch_off(error)

    def _switch_off(self, error: Exception) -> None:
        if self.config.on_error == "raise":
            raise error
        self._off = True
        self._note(f"{type(error).__name__}: {error}; profiling is switched off, the job goes on")

    def _note(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)
            log().warning("%s", problem)

    def _heed(self, problems: list[str]) -> None:
        for problem in problems:
            if self.config.on_error == "raise":
                raise GpuprofError(problem)
            self._note(problem)

    def _begin_step(self, number: int) -> None:
        if self._ledger is not None:
            self._ledger.begin_step(number)
        if self._mistakes.due:
            self._mistakes.warn(self.plan)
        if number >= self._unregistered.first:
            self._unregistered.warn(number)
        if self._windows is not None and self._receipt is None and not self._off:
            try:
                if self._firing is not None:
                    self._firing.begin_step(number)
                problems = self._windows.begin_step(number)
                if problems:
                    self._heed(problems)
            # not `_guarded`, since a context manager costs a microsecond in each step
            except Exception as error:
                self._switch_off(error)

    def _end_step(self, number: int, seconds: float | None) -> None:
        if seconds is not None:
            self._metrics.step(number, seconds)
        if self._ledger is not None:
            self._ledger.end_step(number)
        windows = self._windows
        if windows is not None:
            is_captured = windows.any_open
            try:
                problems = windows.end_step(number)
                if problems:
                    self._heed(problems)
            except Exception as error:
                self._switch_off(error)
            if seconds is None or self._discrete:  # discrete windows open and close in the step
                return
            if is_captured:
                edges, windows.edges = windows.edges, 0.0
                self._step_times.add(seconds, "captured", edges)
            else:
                left_out = self._runner_tree.left_out.active
                self._step_times.add(seconds, "left out" if left_out else "other")


def has_windows(worker_plan: PlannedWorker) -> bool:
    """Whether the driver opens and closes a worker's windows.

    The driver does so except for the whole-life window of a wrapped worker, which ends with the
    worker.
    """
    return worker_plan.profiled and not (worker_plan.worker.lifetime and worker_plan.wrapped)

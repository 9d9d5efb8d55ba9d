"""`Profiler`: gpuprof on the driver of a Ray job."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import attrs
import ray
from gpuprof_timing import Timing

from gpuprof import _artifacts, _config, _plan, _report, _shim, _worker
from gpuprof._artifacts import NodeRecord, Receipt
from gpuprof._config import Config
from gpuprof._log import log
from gpuprof._plan import PlannedWorker, Planner
from gpuprof._session import CLOSE_DEADLINE, OPEN_DEADLINE
from gpuprof._structure import join
from gpuprof._types import Tool, Window
from gpuprof.errors import ConfigError, GpuprofError, ToolError
from gpuprof.ray import _channel, _runtime_env
from gpuprof.ray._nodes import on_each_node

_COLLECT_DEADLINE = 10.0
"""Seconds to wait for trees: a worker that is busy longer has its tree in its file."""

_GRACE = 5.0
"""Seconds that an actor has to end by itself, once it is asked to."""


class Profiler:
    """Profiles the workers of a Ray job.

    Args:
        config: a YAML file, a mapping, or ``None`` to profile nothing. Trees are printed in any case.
        path: where the mapping lies in a larger configuration, for messages.

    Raises:
        ConfigError: the configuration is not valid.
        PluginError: the backend is not installed or broken.
        ToolError: the profiler's program is missing.
        OutputError: the output directory cannot be written.

    >>> profiler = Profiler({"backend": "none", "enabled": False})
    >>> profiler.actor_options(group="ActorGroup", rank=0, num_cpus=1)
    {'num_cpus': 1}
    >>> with profiler.step(0):
    ...     pass
    >>> profiler.plan[0].reason
    'enabled is false'
    """

    def __init__(self, config: str | os.PathLike[str] | Mapping[str, Any] | None = None, *, path: str = "") -> None:
        self.config = _config.load(config, path)
        self.run = os.environ.get("GPUPROF_RUN") or time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)
        output_dir = os.path.abspath(self.config.output_dir)
        self._planner = Planner(self.config, self.run, output_dir)
        self.directory = None if self.config.selects_nothing else os.path.join(output_dir, self.run)
        self._plan: dict[tuple[str, int], PlannedWorker] = {}
        self._handles: dict[tuple[str, int], Any] = {}
        self._windows: dict[tuple[Window, ...], list[str]] = {}
        self._open: dict[str, Window] = {}
        self._problems: list[str] = []
        self._said: set[str] = set()
        self._off = False
        self._channel: _channel.Channel | None = None
        self._receipt: Receipt | None = None
        self._tool = None if self.directory is None else self._preflight(output_dir)
        self.timing = _worker.timing()
        self.timing.name = "Runner profile"
        self._main_loop = self.timing.add_time("main_loop")
        self._main_loop.__enter__()

    @property
    def plan(self) -> list[PlannedWorker]:
        """The rows of all workers that were asked for so far."""
        return list(self._plan.values())

    def actor_options(self, *, group: str, rank: int, **options: Any) -> dict[str, Any]:
        """What to give to `.options()` of an actor.

        Args:
            group: the worker group's name.
            rank: the rank in its group, from 0.
            options: the caller's own options, `runtime_env` among them. They come back as they are, with `runtime_env` merged.

        Raises:
            ConfigError: the group's keys are not valid, or `runtime_env` already wraps the worker.
        """
        has_gpu = bool(options.get("num_gpus"))
        planned = self._planner.worker(group, rank, has_gpu=has_gpu, tool=None)
        self._plan[group, rank] = planned
        if self.directory is None:
            return options
        runtime_env = options.get("runtime_env") or {}
        job_env = ray.get_runtime_context().runtime_env if ray.is_initialized() else {}
        # The user's own values win, wherever they were given.
        own = {**(job_env.get("env_vars") or {}), **(runtime_env.get("env_vars") or {})}
        planned = attrs.evolve(planned, environment={k: v for k, v in planned.environment.items() if k not in own})
        self._plan[group, rank] = planned
        for note in planned.notes:
            if note not in self._said:
                self._said.add(note)
                log().info("%s: %s", group, note)
        row = self._planner.row(planned, _runtime_env.interpreter(runtime_env, job_env), self._tool)
        variables = {_shim.VARIABLE: _shim.encode(row)}
        return {**options, "runtime_env": _runtime_env.merge(runtime_env, variables, planned.wrapped, "runtime_env")}

    def add(self, handle: Any, *, group: str, rank: int) -> None:
        """Make an actor known: its windows are opened, if it is profiled, and its tree is collected, if it is not.

        Raises:
            ConfigError: another actor was added with this group and rank.
        """
        _plan.check_name(group, rank)
        if (group, rank) in self._handles:
            raise ConfigError([f"{group}-{rank}: an actor of this group and rank was added before"])
        self._handles[group, rank] = handle
        planned = self._plan.get((group, rank))
        if planned is None or not planned.profiled or planned.worker.windows[0].start is None:
            return
        with self._guarded():
            if self._channel is None:
                self._channel = _channel.Channel(ray.util.get_node_ip_address())
            self._windows.setdefault(planned.worker.windows, []).append(planned.worker.name)
            handle.__ray_call__.remote(_channel.start_session, self._channel.address)

    def step(self, number: int) -> AbstractContextManager[None]:
        """One global step: opens the windows that begin with it and closes those that end with it. No remote call otherwise.

        Raises:
            GpuprofError: with `on_error: raise`, when a window cannot be opened or closed.
        """
        return _Step(self, number)

    def finalize(self, timeout: float = CLOSE_DEADLINE) -> Receipt:
        """End the run: close windows, collect trees, end profiled actors whose reports need it, wait, print. Once.

        Args:
            timeout: seconds to wait for the profilers to write their reports.
        """
        if self._receipt is not None:
            return self._receipt
        with self._guarded():
            self._close(dict(self._open))
        self._main_loop.__exit__(None, None, None)
        trees = self._collect_trees()
        self._receipt = Receipt((), self.directory)
        with self._guarded():
            self._receipt = self._finish_reports(timeout)
            self._leave_files(trees)
        _report.print_trees(trees, self.timing, self.config.print_trees)
        if self.directory is not None:
            _report.print_receipt(self._receipt)
        if self._channel is not None:
            self._channel.close()
        return self._receipt

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finalize()

    def _preflight(self, output_dir: str) -> Tool | None:
        """Refuse, before anything starts, what would fail on a node. Returns the tool of this one."""
        assert self.directory is not None
        tool = self._planner.check_tool()
        if ray.is_initialized():
            nodes = tuple(self.config.defaults.nodes or ())
            problems = [problem for problem in on_each_node(_check_node, self.config, self.run, output_dir, nodes=nodes) if problem]
            if problems:
                raise ToolError("\n".join(problems))
        _artifacts.make_directory(self.directory, join(self.config.path, "output_dir"))
        return tool

    @contextlib.contextmanager
    def _guarded(self) -> Any:
        """Our own faults switch profiling off, once and said; only `on_error: raise` lets them through."""
        try:
            yield
        except Exception as error:
            if self.config.on_error == "raise":
                raise
            self._off = True
            self._note(f"{type(error).__name__}: {error}; profiling is switched off, the job goes on")

    def _note(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)
            log().warning("%s", problem)

    def _begin_step(self, number: int) -> None:
        to_open: dict[str, Window] = {}
        for windows, names in self._windows.items():
            position = bisect_right(windows, number, key=_first_step) - 1
            if position >= 0 and number in windows[position]:
                to_open.update((name, windows[position]) for name in names if self._open.get(name) != windows[position])
        if to_open and not self._off:
            with self._guarded():
                self._open.update(to_open)
                self._tell("open", to_open, OPEN_DEADLINE)

    def _end_step(self, number: int) -> None:
        to_close = {name: window for name, window in self._open.items() if window.stop is not None and number + 1 >= window.stop}
        if to_close:
            with self._guarded():
                self._close(to_close)

    def _close(self, windows: dict[str, Window]) -> None:
        for name in windows:
            self._open.pop(name, None)
        if windows:
            self._tell("close", windows, CLOSE_DEADLINE)

    def _tell(self, kind: str, windows: dict[str, Window], deadline: float) -> None:
        assert self._channel is not None
        silent = set(windows) - self._channel.connected()
        for (group, rank), handle in self._handles.items():
            if f"{group}-{rank}" in silent:  # not started yet, or restarted
                handle.__ray_call__.remote(_channel.start_session, self._channel.address)
        answers = self._channel.ask(kind, {name: window.number for name, window in windows.items()}, deadline)
        problems = [f"{name}: {problem}" for name, problem in answers.items() if problem]
        late = sorted(set(windows) - set(answers))
        problems += [f"{name}: {windows[name].label}: did not {kind} its window within {deadline:.0f} s" for name in late]
        for problem in problems:
            if self.config.on_error == "raise":
                raise GpuprofError(problem)
            self._note(problem)

    def _collect_trees(self) -> dict[tuple[str, int], Timing]:
        trees: dict[tuple[str, int], Timing] = {}
        collected: dict[tuple[str, int], dict[str, Any]] = {}
        if ray.is_initialized():
            calls = {handle.__ray_call__.remote(_snapshot): key for key, handle in self._handles.items()}
            ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=_COLLECT_DEADLINE) if calls else ([], [])
            for reference in ready:
                with contextlib.suppress(ray.exceptions.RayError):
                    collected[calls[reference]] = ray.get(reference)
        if self.directory is not None:
            for start in _artifacts.read_node(self.directory).starts:
                if start.session is not None and (start.group, start.rank) not in collected:
                    collected[start.group, start.rank] = start.session["timing"]
        for key in [*self._handles, *(key for key in collected if key not in self._handles)]:
            if key in collected and collected[key]["children"]:
                trees[key] = Timing.from_dict(collected[key])
                trees[key].name = f"{key[0]}-{key[1]} profile"
        return trees

    def _finish_reports(self, timeout: float) -> Receipt:
        if self.directory is None:
            return Receipt((), None)
        profiled = {key: planned for key, planned in self._plan.items() if planned.profiled}
        receipt, records = self._look(profiled)
        wrapped = {key: handle for key, handle in self._handles.items() if key in profiled and profiled[key].wrapped}
        unfinished = {row.worker for row in receipt.rows if row.state != "complete"}
        waiting = {key for key in wrapped if profiled[key].worker.name in unfinished}
        if ray.is_initialized():
            for key in waiting:
                # With retries left Ray would run this again, on a restarted actor.
                wrapped[key].__ray_terminate__.options(max_task_retries=0).remote()
        start = time.monotonic()
        killed = False
        while self._still_running(waiting, records) and time.monotonic() < start + timeout:
            time.sleep(0.1)
            receipt, records = self._look(profiled)
            if time.monotonic() > start + _GRACE and not killed and ray.is_initialized():
                # A call to terminate waits behind whatever the actor does, which may be for ever. Its windows are closed and its
                # tree is collected, and the profiler writes the report of a killed worker as well.
                killed = True
                for key in waiting:
                    ray.kill(wrapped[key])
        return receipt

    def _look(self, profiled: dict[tuple[str, int], PlannedWorker]) -> tuple[Receipt, list[NodeRecord]]:
        assert self.directory is not None
        records = on_each_node(_artifacts.read_node, self.directory)
        rows = [
            row
            for planned in profiled.values()
            for row in _artifacts.receipt_rows(planned, records, self._planner.manager(planned.worker.group))
        ]
        return Receipt(tuple(rows), self.directory, tuple(self._problems)), records

    @staticmethod
    def _still_running(waiting: set[tuple[str, int]], records: list[NodeRecord]) -> bool:
        return any(
            (start.group, start.rank) in waiting and start.tool is not None and start.tool["state"] == "running"
            for record in records
            for start in record.starts
        )

    def _leave_files(self, trees: dict[tuple[str, int], Timing]) -> None:
        if self.directory is None or self._receipt is None:
            return
        node = os.path.join(self.directory, _shim.node_name())
        os.makedirs(node, exist_ok=True)
        _shim.write_json(os.path.join(node, "Runner.json"), {"version": 1, "name": "Runner", "timing": self.timing.to_dict()})
        workers = [
            {
                "group": planned.worker.group,
                "rank": planned.worker.rank,
                "profiled": planned.profiled,
                "reason": planned.reason,
                "command": list(planned.command),
                "environment": _plan.masked(planned.environment),
                "notes": list(planned.notes),
            }
            for planned in self.plan
        ]
        manifest = {"version": 1, "run": self.run, "backend": self.config.backend, "workers": workers, **self._receipt.to_dict()}
        _shim.write_json(os.path.join(self.directory, "manifest.json"), manifest)


def _first_step(window: Window) -> int:
    return window.start or 0


class _Step(AbstractContextManager[None]):
    def __init__(self, profiler: Profiler, number: int) -> None:
        self._profiler = profiler
        self._number = number

    def __enter__(self) -> None:
        self._profiler._begin_step(self._number)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._profiler._end_step(self._number)


def _snapshot(_: object) -> dict[str, Any]:
    """Run in a worker: its tree, which is written to its file as well."""
    timing = _worker.timing()
    session = _worker.session()
    if session is not None:
        session.write()
    return timing.to_dict()


def _check_node(config: Config, run: str, output_dir: str) -> str | None:
    """Run on a node: what would keep the profiler from running there."""
    try:
        Planner(config, run, output_dir).check_tool()
    except GpuprofError as error:
        return f"{_shim.node_name()}: {error}"
    return None

"""NeMo-RL: its variables, its worker groups, its algorithms' steps and its timers.

In the place of an edit of NeMo-RL::

    import gpuprof_nemo_rl

    gpuprof_nemo_rl.install()  # before nemo_rl is imported

and nothing else: ``NRL_NSYS_WORKER_PATTERNS`` and ``NRL_NSYS_PROFILE_STEP_RANGE`` say what is
profiled, the first worker group begins the run, and it ends with the program.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuprof import timer, timing
from gpuprof.frameworks import (
    after_import,
    check,
    guarded,
    import_steps,
    is_planned,
    nothing_profiled,
    replace,
    unknown_release,
    whole_workers,
)

if TYPE_CHECKING:
    from gpuprof.ray.driver import Run

__all__ = ["ON_RAY", "PACKAGE", "TRIED", "install", "install_in_worker", "profile"]

PACKAGE = "nemo_rl"
ON_RAY = True
TRIED = ("0.6.0",)
_VARIABLES = (
    "NRL_NSYS_WORKER_PATTERNS",
    "NRL_NSYS_PROFILE_STEP_RANGE",
    "NRL_NSYS_EXTRA_OPTIONS",
)
_NSYS = "nemo_rl.utils.nsys"
"""The module of NeMo-RL's own profiler, which is told of each step."""
_ENGINES = "generation_worker"
"""The end of the names of groups whose workers hold an engine.

The engines of vLLM and TensorRT-LLM start further actors for their GPUs. NeMo-RL has Ray wrap those
actors.
"""
_settings: dict[str, str] | None = None


def install() -> None:
    """Integrate gpuprof into NeMo-RL in this process, and in the workers of its Ray job.

    Call it before nemo_rl is imported. It takes ``NRL_NSYS_…`` out of the environment: NeMo-RL
    would otherwise change Ray's files and have Ray wrap the workers, too. Workers with an engine
    get them back, for NeMo-RL to have Ray wrap what the engine starts.
    """
    global _settings
    from gpuprof.ray import driver, hook_workers

    if _settings is None:
        _settings = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    off = not _settings and "GPUPROF_CONFIG" not in os.environ
    if not off:
        # report invalid settings before anything starts
        guarded("NeMo-RL: settings", lambda: driver.config_of(*_source()))
    hook_workers(__name__, lambda: not off, driver.end)
    after_import("nemo_rl.distributed.worker_groups", _workers, nothing_profiled)
    if unknown_release("nemo-rl", TRIED) is None:
        after_import(_NSYS, _steps, whole_workers)
    after_import("nemo_rl.models.generation.sglang.sglang_generation", _sglang)
    install_in_worker()


def install_in_worker() -> None:
    """The part of `install` for every process of the job."""
    if not is_planned():  # a worker's were given by us, for what its engine starts
        for name in _VARIABLES:
            os.environ.pop(name, None)
        after_import(_NSYS, _own_profiler)
    unknown = unknown_release("nemo-rl", TRIED)
    if unknown:
        whole_workers(unknown)
        return
    after_import(_NSYS, _nvtx_ranges)
    after_import("nemo_rl.utils.timer", _timers)


def profile() -> Run:
    """The run of a program with its own loop: a context manager that returns the `Profiler`.

    Raises:
        GpuprofError: as `Profiler` does, when the run begins.
    """
    from gpuprof.ray import driver

    install()
    return driver.Run(lambda: driver.begin(*_source()))


def _source() -> tuple[str, dict[str, str] | None]:
    return ("nemo-rl", _settings) if _settings else ("gpuprof", None)


# Hooks where NeMo-RL makes workers and counts steps


class _Making:
    """The worker group that is being made.

    Attributes:
        group: the name that NeMo-RL's patterns are matched against, by the workers' class.
        first: gpuprof's rank of the first worker. Ranks continue after an earlier group of the same
            class.
        ranks: the ranks of the planned workers in NeMo-RL's group.
    """

    group = ""
    first = 0

    def __init__(self) -> None:
        self.ranks: list[int] = []

    def begin(self, builder: Any) -> None:
        """Begin the run if this is the run's first group, and number the group's workers."""
        from gpuprof.ray import driver

        from gpuprof_nemo_rl.settings import group_of_class

        self.ranks.clear()
        import_steps(_NSYS)
        profiler = driver.begin(*_source())
        self.group = group_of_class(builder.ray_actor_class_fqn)
        self.first = sum(row.worker.group == self.group for row in profiler.plan)

    def add(self, group: Any) -> None:
        """Add the workers that NeMo-RL has made, now that their handles are there."""
        from gpuprof.ray import driver

        profiler = driver.current()
        if profiler is None:
            return
        at = {about["global_rank"]: n for n, about in enumerate(group.worker_metadata)}
        for rank in self.ranks:
            profiler.add(group.workers[at[rank]], group=self.group, rank=self.first + rank)


class _Initializer:
    """Wraps the actor that makes the workers, and plans each worker.

    The actor keeps the runtime environment that NeMo-RL gives it. Under a profiler, the actor would
    be taken for the worker, and the worker for its child.
    """

    def __init__(self, handle: Any, making: _Making) -> None:
        self._handle = handle
        self._making = making

    @property
    def create_worker(self) -> _Initializer:
        return self

    def remote(self, *args: Any, **options: Any) -> Any:
        worker_env = guarded("NeMo-RL: a worker", lambda: self._plan(args, options))
        if worker_env is not None:
            options["runtime_env"] = worker_env
        return self._handle.create_worker.remote(*args, **options)

    def _plan(self, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any] | None:
        from gpuprof.ray import driver

        runtime_env = options.get("runtime_env") or {}
        variables = runtime_env.get("env_vars") or {}
        if "RANK" not in variables or driver.current() is None or not self._making.group:
            return None
        rank = int(variables["RANK"])
        has_gpu = len(args) > 2 and bool(args[2])
        worker_env = driver.plan(
            self._making.group, self._making.first + rank, runtime_env, has_gpu
        )
        if self._making.group.endswith(_ENGINES):
            worker_env["env_vars"] = {**worker_env.get("env_vars", {}), **(_settings or {})}
        self._making.ranks.append(rank)
        return worker_env


class _InitializerClass:
    """Replaces NeMo-RL's ``RayWorkerBuilder.IsolatedWorkerInitializer``."""

    def __init__(self, actor_class: Any, making: _Making) -> None:
        self._class = actor_class
        self._making = making

    def options(self, **options: Any) -> _InitializerClass:
        return _InitializerClass(self._class.options(**options), self._making)

    def remote(self, *args: Any, **options: Any) -> _Initializer:
        return _Initializer(self._class.remote(*args, **options), self._making)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._class, name)


def _workers(module: ModuleType) -> None:
    making = _Making()

    def adding(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(
            self: Any, cluster: Any, remote_worker_builder: Any, *args: Any, **options: Any
        ) -> None:
            guarded("NeMo-RL: the run", lambda: making.begin(remote_worker_builder))
            original(self, cluster, remote_worker_builder, *args, **options)
            guarded("NeMo-RL: a worker group", lambda: making.add(self))

        return __init__

    builder = module.RayWorkerBuilder
    actor_class = builder.IsolatedWorkerInitializer
    replace(module.RayWorkerGroup, "__init__", adding, ["remote_worker_builder"])
    builder.IsolatedWorkerInitializer = _InitializerClass(actor_class, making)


def _steps(module: ModuleType) -> None:
    """Begin a step in `maybe_gpu_profile_step`, which NeMo-RL calls as a step begins."""

    def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
        def maybe_gpu_profile_step(policy: Any, step: int) -> None:
            from gpuprof.ray import driver

            guarded("NeMo-RL: a step", lambda: driver.begin_step(step))
            if _is_engine(policy):  # starts the profilers of what it has started
                _as_without_us(module, lambda: original(policy, step))
            else:
                original(policy, step)

        return maybe_gpu_profile_step

    replace(module, "maybe_gpu_profile_step", stepping, ["policy", "step"])


def _is_engine(policy: Any) -> bool:
    """Whether a policy generates and has the methods that NeMo-RL's profiler calls."""
    interfaces = sys.modules.get("nemo_rl.models.generation.interfaces")
    interface = getattr(interfaces, "GenerationInterface", ())
    return isinstance(policy, interface) and hasattr(policy, "start_gpu_profiling")


def _as_without_us(module: ModuleType, call: Callable[[], Any]) -> Any:
    """Call a function while the module's copies of NeMo-RL's variables have the user's values."""
    values = {name: getattr(module, name) for name in _VARIABLES if hasattr(module, name)}
    settings = _settings or {}
    options = {_VARIABLES[2]: json.loads(settings.get(_VARIABLES[2]) or "{}")}
    try:
        for name in values:
            setattr(module, name, options.get(name, settings.get(name, "")))
        return call()
    finally:
        for name, value in values.items():
            setattr(module, name, value)


def _sglang(module: ModuleType) -> None:
    """Leave SGLang's engines to NeMo-RL's profiler: the driver makes them, not a worker group."""
    from gpuprof_nemo_rl.settings import QUESTION

    original = check(module, QUESTION, ["worker_name"])
    copies = sys.modules[original.__module__]

    def answer(worker_name: str) -> Any:
        return _as_without_us(copies, lambda: original(worker_name))

    # not by `replace`, which would change the answer for our own workers, too
    setattr(module, QUESTION, answer)


def _own_profiler(module: ModuleType) -> None:
    """Clear the module's copies of the variables, read if it was imported before `install`."""
    for name in _VARIABLES[:2]:
        setattr(module, name, "")


# Scopes where NeMo-RL itself times


def _nvtx_ranges(module: ModuleType) -> None:
    """Replace `wrap_with_nvtx_name` by gpuprof's `timer`."""

    def naming(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrap_with_nvtx_name(name: str) -> Callable[..., Any]:
            return timer(name)

        return wrap_with_nvtx_name

    replace(module, "wrap_with_nvtx_name", naming, ["name"])


def _timers(module: ModuleType) -> None:
    """Open scopes in `start` and `stop` of `Timer`, which `Timer.time` calls, too."""
    scopes: dict[tuple[int, str], Any] = {}

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start(self: Any, label: str, *args: Any, **options: Any) -> Any:
            result = original(self, label, *args, **options)  # raises if it is running
            scopes[id(self), label] = timing().add_time(label).__enter__()
            return result

        return start

    def stopping(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def stop(self: Any, label: str, *args: Any, **options: Any) -> Any:
            scope = scopes.pop((id(self), label), None)
            if scope is not None:
                scope.__exit__(None, None, None)
            return original(self, label, *args, **options)

        return stop

    def resetting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def reset(self: Any, label: str | None = None) -> Any:
            for of, name in [*scopes]:
                if of == id(self) and label in (None, name):
                    scopes.pop((of, name)).__exit__(None, None, None)
            return original(self, label)

        return reset

    replace(module.Timer, "start", starting, ["label"])
    replace(module.Timer, "stop", stopping, ["label"])
    replace(module.Timer, "reset", resetting, ["label"])

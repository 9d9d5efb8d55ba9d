"""RLinf: its settings, its worker groups, its runners' steps and its timers.

In the place of an edit of RLinf::

    import gpuprof_rlinf

    gpuprof_rlinf.install()  # before rlinf is imported

and nothing else: the run begins with `Cluster`, whose configuration has `cluster.profiling`, and
ends with the program. RLinf's runners mark the steps; a program with a loop of its own says where::

    with gpuprof_rlinf.profile(cfg) as profiler:
        cluster = Cluster(cluster_cfg=cfg.cluster)
        ...
        for number in range(5):
            with profiler.step(number):
                actor.run_training().wait()
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuprof import timing
from gpuprof.frameworks import (
    UnexpectedError,
    after_import,
    guarded,
    import_steps,
    nothing_profiled,
    replace,
    unknown_release,
    whole_workers,
)
from gpuprof_timing.instrument import recording_of

if TYPE_CHECKING:
    from gpuprof.ray.driver import Run

__all__ = ["ON_RAY", "PACKAGE", "TRIED", "install", "install_in_worker", "profile"]

PACKAGE = "rlinf"
ON_RAY = True
TRIED = ("0.3.0",)
_STEPS = "rlinf.utils.distributed"
"""The module of the timer that marks the steps."""
_off = True
_planned: dict[str, Any] | None = None
"""The runtime environment of the worker that `Cluster.allocate` is making."""


def install() -> None:
    """Integrate gpuprof into RLinf in this process, and in the workers of its Ray job.

    Call it before rlinf is imported.
    """
    from gpuprof.ray import driver, hook_workers

    hook_workers(__name__, lambda: not _off, driver.end)
    after_import("rlinf.scheduler.cluster.cluster", _cluster, nothing_profiled)
    if unknown_release("rlinf", TRIED) is None:
        after_import(_STEPS, _driver_timer, whole_workers)
    install_in_worker()


def install_in_worker() -> None:
    """The part of `install` for every process of the job."""
    after_import("rlinf.scheduler.worker.worker", _own_profiler)
    unknown = unknown_release("rlinf", TRIED)
    if unknown:
        whole_workers(unknown)
        return
    after_import("rlinf.scheduler.worker.worker", _worker_timers)
    after_import("rlinf.scheduler.hardware.accelerators.accelerator", _ranges)


def profile(cfg: Mapping[str, Any] | None) -> Run:
    """The run of a program with its own loop: a context manager that returns the `Profiler`.

    Args:
        cfg: RLinf's whole configuration; ``None``: gpuprof's own, as `gpuprof.ray.Profiler` has it.

    Raises:
        GpuprofError: as `Profiler` does, when the run begins.
    """
    from gpuprof.ray import driver

    install()
    return driver.Run(lambda: _begin(cfg))


def _begin(cfg: Any) -> Any:
    global _off
    from gpuprof.ray import driver

    import_steps(_STEPS)
    profiler = driver.begin("gpuprof" if cfg is None else "rlinf", cfg)
    _off = profiler.config.selects_nothing
    return profiler


# Hooks where RLinf reads settings, makes workers and counts steps


def _cluster(module: ModuleType) -> None:
    def beginning(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(
            self: Any, num_nodes: Any = None, cluster_cfg: Any = None, *args: Any, **options: Any
        ) -> None:
            new_cfg = guarded("RLinf: settings", lambda: _take_settings(self, cluster_cfg))
            cluster_cfg = cluster_cfg if new_cfg is None else new_cfg
            original(self, num_nodes, cluster_cfg, *args, **options)

        return __init__

    def allocating(original: Callable[..., Any]) -> Callable[..., Any]:
        def allocate(
            self: Any, cls: Any, worker_name: str, worker_rank: int, *args: Any, **options: Any
        ) -> Any:
            from gpuprof.ray import driver

            identity = guarded("RLinf: a worker", lambda: _identity(self, worker_rank, options))
            if driver.current() is None or identity is None:
                return original(self, cls, worker_name, worker_rank, *args, **options)
            group, runtime_env, has_gpu = identity

            def start(worker_env: dict[str, Any]) -> Any:
                global _planned
                _planned = worker_env
                try:
                    return original(self, cls, worker_name, worker_rank, *args, **options)
                finally:
                    _planned = None

            return driver.make(group, worker_rank, runtime_env, start, has_gpu)

        return allocate

    # RLinf calls these two for a profiler's command in front of a worker, and for its variables.
    def wrapping(original: Callable[..., Any]) -> Callable[..., Any]:
        def modify_profile_context(cls: Any, *args: Any, **options: Any) -> Any:
            theirs = original(cls, *args, **options)
            return _planned.get("py_executable", theirs) if _planned is not None else theirs

        return modify_profile_context

    def adding(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_profiling_env_vars_for_worker(cls: Any, *args: Any, **options: Any) -> Any:
            theirs = original(cls, *args, **options)
            return {**theirs, **((_planned or {}).get("env_vars") or {})}

        return get_profiling_env_vars_for_worker

    cluster = module.Cluster
    replace(cluster, "modify_profile_context", wrapping, ["python_interpreter_path"])
    replace(cluster, "get_profiling_env_vars_for_worker", adding, ["worker_name"])
    replace(cluster, "allocate", allocating, ["worker_rank", "env_vars", "node_group_label"])
    replace(cluster, "__init__", beginning, ["cluster_cfg"])


def _identity(
    cluster: Any, rank: int, options: Mapping[str, Any]
) -> tuple[str, dict[str, Any], bool] | None:
    """Group, runtime environment, and whether there is a GPU, of a worker about to start."""
    variables = options.get("env_vars") or {}
    if "GROUP_NAME" not in variables:
        return None
    node = options["node_rank"]
    path = cluster.get_node_group(options["node_group_label"]).get_node_python_interpreter_path(
        node
    )
    interpreter = str(path or cluster.get_node_info(node).python_interpreter_path)
    has_gpu = bool(variables.get("VISIBLE_DEVICES"))
    return variables["GROUP_NAME"], {"py_executable": interpreter}, has_gpu


def _take_settings(cluster: Any, cluster_cfg: Any) -> Any:
    """Begin the run, and return RLinf's configuration without `profiling`."""
    from gpuprof.ray import driver

    if cluster_cfg is None or cluster._has_initialized:  # one `Cluster` in a process
        return cluster_cfg
    if driver.current() is None:
        _begin({"cluster": {"profiling": cluster_cfg.get("profiling")}})
    if cluster_cfg.get("profiling") is None:
        return cluster_cfg
    return type(cluster_cfg)({key: cluster_cfg[key] for key in cluster_cfg if key != "profiling"})


def _driver_timer(module: ModuleType) -> None:
    """Open a scope in the runners' timer. ``with self.timer("step")`` is also a step of the run."""

    def timing_too(original: Callable[..., Any]) -> Callable[..., Any]:
        theirs = _generator(original)

        @contextmanager  # as RLinf's, so that it decorates, too
        def __call__(self: Any, name: str) -> Iterator[None]:
            from gpuprof.ray import driver

            number = _number(sys._getframe(2).f_locals.get("self")) if name == "step" else None
            step = nullcontext() if number is None else driver.step(number)
            with step, timing().add_time(name):
                yield from theirs(self, name)

        return __call__

    replace(module.ScopedTimer, "__call__", timing_too, ["name"])


def _generator(context_manager: Callable[..., Any]) -> Callable[..., Iterator[None]]:
    """The generator function below `@contextmanager`, for another context manager to run."""
    function: Callable[..., Iterator[None]] = inspect.unwrap(context_manager)
    if not inspect.isgeneratorfunction(function):
        raise UnexpectedError(
            f"{context_manager.__qualname__} is not a generator under @contextmanager"
        )
    return function


def _number(runner: Any) -> int | None:
    """The step that a runner is about to run, from either attribute with which runners count."""
    number = getattr(runner, "global_step", getattr(runner, "global_steps", None))
    return number if isinstance(number, int) else None


# Scopes where RLinf itself times


def _own_profiler(module: ModuleType) -> None:
    """Keep RLinf from opening windows itself."""

    def nothing(original: Callable[..., Any]) -> Callable[..., Any]:
        def profile(self: Any, *args: Any, **options: Any) -> None:
            """gpuprof opens and closes the windows."""

        return profile

    replace(module.Worker, "start_profile", nothing)
    replace(module.Worker, "stop_profile", nothing)


def _worker_timers(module: ModuleType) -> None:
    """Open scopes in `Worker.worker_timer`, which `Worker.timer` calls, too."""

    def timing_too(original: Callable[..., Any]) -> Callable[..., Any]:
        theirs = _generator(original)

        @contextmanager  # as RLinf's, so that it decorates, too
        def worker_timer(self: Any, tag: str | None = None) -> Iterator[None]:
            label = sys._getframe(2).f_code.co_name if tag is None else tag
            with timing().add_time(label):
                yield from theirs(self, label)

        return worker_timer

    replace(module.Worker, "worker_timer", timing_too, ["tag"])


def _ranges(module: ModuleType) -> None:
    """Open scopes in `profiling_range`, unless `worker_timer` has opened the same scope."""

    def opening(original: Callable[..., Any]) -> Callable[..., Any]:
        def profiling_range(
            accelerator_type: Any,
            label: str,
            color: str | None = None,
            domain: str | None = None,
        ) -> Any:
            if recording_of(timing()).is_in(label):  # its range is open
                return original(accelerator_type, label, color, domain)
            return timing().add_time(label)

        return profiling_range

    replace(module.AcceleratorUtil, "profiling_range", opening, ["label"])

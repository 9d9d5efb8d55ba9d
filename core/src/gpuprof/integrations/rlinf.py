"""RLinf: its settings, its worker groups, its runners' steps and its timers.

Tried with rlinf 0.3.0.

In the place of an edit of RLinf::

    import gpuprof.integrations.rlinf

    gpuprof.integrations.rlinf.install()  # before rlinf is imported

and nothing else: the run begins with `Cluster`, whose configuration has `cluster.profiling`, and
ends with the program. RLinf's runners mark the steps; a program with a loop of its own says where::

    with gpuprof.integrations.rlinf.profile(cfg) as profiler:
        cluster = Cluster(cluster_cfg=cfg.cluster)
        ...
        for number in range(5):
            with profiler.step(number):
                actor.run_training().wait()
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuprof._session.public import timing
from gpuprof.integrations._changes import UnexpectedError, after_import, check_version, replace

if TYPE_CHECKING:
    from gpuprof.integrations._driver import Run

__all__ = ["TRIED", "install", "install_in_worker", "profile"]

TRIED = ("0.3.0",)
"""The releases that this was tried with."""
_off = True
_planned: dict[str, Any] | None = None
"""The runtime environment of the worker that `Cluster.allocate` is making."""
_timed = contextvars.ContextVar("_timed", default="")
"""The name of the innermost `worker_timer`, whose range is not opened twice."""


def install() -> None:
    """Integrate gpuprof into RLinf in this process, and in the workers of its Ray job.

    Call it before rlinf is imported.
    """
    from gpuprof.integrations import _driver
    from gpuprof.ray import hook_workers

    check_version("rlinf", TRIED)
    hook_workers(__name__, lambda: not _off, _driver.end)
    after_import("rlinf.scheduler.cluster.cluster", _cluster)
    after_import("rlinf.utils.distributed", _driver_timer)
    install_in_worker()


def install_in_worker() -> None:
    """The part of `install` for every process of the job."""
    after_import("rlinf.scheduler.worker.worker", _worker_timers)
    after_import("rlinf.scheduler.hardware.accelerators.accelerator", _ranges)


def profile(cfg: Mapping[str, Any] | None) -> Run:
    """The run, for a program with a loop of its own: a context manager that gives the `Profiler`.

    Args:
        cfg: RLinf's whole configuration; ``None``: gpuprof's own, as `gpuprof.ray.Profiler` has it.

    Raises:
        GpuprofError: as `Profiler` does, when the run begins.
    """
    from gpuprof.integrations import _driver

    install()
    return _driver.Run(lambda: _begin(cfg))


def _begin(cfg: Any) -> Any:
    global _off
    from gpuprof.integrations import _driver

    profiler = _driver.begin("gpuprof" if cfg is None else "rlinf", cfg)
    _off = profiler.config.selects_nothing
    return profiler


# Where settings are read, workers are made and steps are counted


def _cluster(module: ModuleType) -> None:
    def beginning(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(
            self: Any, num_nodes: Any = None, cluster_cfg: Any = None, *args: Any, **options: Any
        ) -> None:
            if cluster_cfg is not None and not self._has_initialized:
                cluster_cfg = _take_settings(cluster_cfg)
            original(self, num_nodes, cluster_cfg, *args, **options)

        return __init__

    def allocating(original: Callable[..., Any]) -> Callable[..., Any]:
        def allocate(
            self: Any, cls: Any, worker_name: str, worker_rank: int, *args: Any, **options: Any
        ) -> Any:
            from gpuprof.integrations import _driver

            variables = options.get("env_vars") or {}
            if _driver.current() is None or "GROUP_NAME" not in variables:
                return original(self, cls, worker_name, worker_rank, *args, **options)

            def start(planned: dict[str, Any]) -> Any:
                global _planned
                _planned = planned
                try:
                    return original(self, cls, worker_name, worker_rank, *args, **options)
                finally:
                    _planned = None

            return _driver.make(
                variables["GROUP_NAME"],
                worker_rank,
                {"py_executable": _interpreter(self, *_place(original, self, args, options))},
                start,
                has_gpu=bool(variables.get("VISIBLE_DEVICES")),
            )

        return allocate

    # RLinf's own places for what a profiler puts in front of a worker, and into its environment.
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


def _place(
    allocate: Callable[..., Any], cluster: Any, args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[int, str]:
    if "node_rank" not in options or "node_group_label" not in options:
        raise UnexpectedError("Cluster.allocate: node_rank and node_group_label are not named")
    return options["node_rank"], options["node_group_label"]


def _interpreter(cluster: Any, node_rank: int, label: str) -> str:
    """The Python that RLinf gives a worker on this node."""
    configured = cluster.get_node_group(label).get_node_python_interpreter_path(node_rank)
    return str(configured or cluster.get_node_info(node_rank).python_interpreter_path)


def _take_settings(cluster_cfg: Any) -> Any:
    """Begin the run, and give RLinf the configuration without what gpuprof does now."""
    from gpuprof.integrations import _driver

    if _driver.current() is None:
        _begin({"cluster": {"profiling": cluster_cfg.get("profiling")}})
    if cluster_cfg.get("profiling") is None:
        return cluster_cfg
    return type(cluster_cfg)({key: cluster_cfg[key] for key in cluster_cfg if key != "profiling"})


def _driver_timer(module: ModuleType) -> None:
    """The timer of the runners: ``with self.timer("step")`` is a step of the run."""

    def timing_too(original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(self: Any, name: str) -> Any:
            number = _number(sys._getframe(1).f_locals.get("self")) if name == "step" else None
            return _timed_by_driver(original(self, name), name, number)

        return __call__

    replace(module.ScopedTimer, "__call__", timing_too, ["name"])


@contextmanager
def _timed_by_driver(theirs: Any, name: str, number: int | None) -> Iterator[None]:
    from gpuprof.integrations import _driver

    step = nullcontext() if number is None else _driver.step(number)
    with step, timing().add_time(name), theirs:
        yield


def _number(runner: Any) -> int | None:
    """The step that a runner is about to run: all of RLinf's count in one of these."""
    number = getattr(runner, "global_step", getattr(runner, "global_steps", None))
    return number if isinstance(number, int) else None


# What RLinf times itself


class _Timed:
    """A `worker_timer` with a scope of ours."""

    __slots__ = ("_label", "_scope", "_theirs", "_token")

    def __init__(self, theirs: Any, label: str) -> None:
        self._theirs, self._label = theirs, label

    def __enter__(self) -> None:
        self._scope = timing().add_time(self._label).__enter__()
        self._token = _timed.set(self._label)
        self._theirs.__enter__()

    def __exit__(self, *error: Any) -> Any:
        _timed.reset(self._token)
        self._scope.__exit__(*error)
        return self._theirs.__exit__(*error)


def _worker_timers(module: ModuleType) -> None:
    """`Worker.timer` and `worker_timer`; and no window of RLinf's own is opened."""

    def timing_too(original: Callable[..., Any]) -> Callable[..., Any]:
        def worker_timer(self: Any, tag: str | None = None) -> Any:
            label = sys._getframe(1).f_code.co_name if tag is None else tag
            return _Timed(original(self, label), label)

        return worker_timer

    def nothing(original: Callable[..., Any]) -> Callable[..., Any]:
        def profile(self: Any, *args: Any) -> None:
            """gpuprof opens and closes the windows."""

        return profile

    replace(module.Worker, "worker_timer", timing_too, ["tag"])
    replace(module.Worker, "start_profile", nothing, ["step_idx"])
    replace(module.Worker, "stop_profile", nothing)


def _ranges(module: ModuleType) -> None:
    """`profiling_range`, also as `Worker.timer` calls it inside a `worker_timer`."""

    def opening(original: Callable[..., Any]) -> Callable[..., Any]:
        def profiling_range(
            accelerator_type: Any,
            label: str,
            color: str | None = None,
            domain: str | None = None,
        ) -> Any:
            if _timed.get() == label:
                return original(accelerator_type, label, color, domain)
            return timing().add_time(label)

        return profiling_range

    replace(module.AcceleratorUtil, "profiling_range", opening, ["label"])

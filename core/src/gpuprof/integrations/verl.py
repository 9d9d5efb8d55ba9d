"""verl: its settings, its worker groups, its trainers' steps and its timers.

Tried with verl 0.9.1.

In the place of an edit of verl::

    import gpuprof.integrations.verl

    gpuprof.integrations.verl.install()  # before verl is imported

and nothing else: verl's trainers begin and end the run. A program with a loop of its own around
verl's worker groups says where::

    with gpuprof.integrations.verl.profile(config) as profiler:
        group = RayWorkerGroup(pool, RayClassWithInitArgs(Actor))
        for number in range(1, 6):
            with profiler.step(number):
                group.update_actor()
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuprof._session.public import timer, timing
from gpuprof.integrations._changes import (
    after_import,
    check_version,
    guarded,
    replace,
)

if TYPE_CHECKING:
    from gpuprof.integrations._driver import Run
    from gpuprof.ray import Profiler

__all__ = ["TRIED", "install", "install_in_worker", "profile"]

TRIED = ("0.9.1",)
"""The releases that this was tried with."""
_TAKEN_OVER = ("nsys", "torch")
"""verl's tools that gpuprof's backends serve."""
_GROUP = "_gpuprof_group"
_off = False


def install() -> None:
    """Integrate gpuprof into verl in this process, and in the workers of its Ray job.

    Call it before verl is imported, and before Ray is started.
    """
    from gpuprof.integrations import _driver
    from gpuprof.ray import hook_workers

    check_version("verl", TRIED)
    hook_workers(__name__, lambda: not _off, _driver.end)
    after_import("verl.utils.config", _settings)
    install_in_worker()


def install_in_worker() -> None:
    """The part of `install` for every process of the job."""
    after_import("verl.utils.profiler.performance", _timers)
    after_import("verl.utils.profiler.nvtx_profile", _nvtx_ranges)
    after_import("verl.utils.profiler.profile", _annotations)
    after_import("verl.single_controller.ray.base", _workers)
    after_import("verl.trainer.ppo.v1.trainer_base", _trainer_v1)
    after_import("verl.trainer.ppo.ray_trainer", _trainer_v0)


def profile(config: Mapping[str, Any] | None) -> Run:
    """The run, for a program with a loop of its own: a context manager that gives the `Profiler`.

    Args:
        config: verl's whole configuration; ``None``: gpuprof's own, as `gpuprof.ray.Profiler` has
            it.

    Raises:
        GpuprofError: as `Profiler` does, when the run begins.
    """
    from gpuprof.integrations import _driver

    install()
    _learn(config)
    return _driver.Run(lambda: _begin(config))


def _begin(config: Any) -> Profiler:
    from gpuprof.integrations import _driver

    if config is None:
        return _driver.begin("gpuprof", None)
    # The controller makes the workers: it runs already, so nothing can be put in front of it.
    groups = [
        name
        for name in _driver.config_of("verl", config).worker_groups or ()
        if name != "controller"
    ]
    overrides = (f"worker_groups=[{','.join(groups)}]",) if groups else ()
    return _driver.begin("verl", config, overrides)


def _learn(config: Any) -> None:
    """Read the settings before Ray starts, so that a job without profiling gets no worker hook."""
    global _off
    from gpuprof.integrations import _driver

    _off = _driver.config_of("gpuprof" if config is None else "verl", config).selects_nothing


# Where settings are checked, workers are made and steps are counted


def _settings(module: ModuleType) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def validate_config(*args: Any, **options: Any) -> Any:
            guarded("verl: settings", lambda: _learn(args[0] if args else options["config"]))
            return original(*args, **options)

        return validate_config

    replace(module, "validate_config", make, ["config"])


def _workers(module: ModuleType) -> None:
    def name_group(original: Callable[..., Any]) -> Callable[..., Any]:
        def create_colocated(class_dict: Mapping[str, Any]) -> Any:
            from gpuprof.compat.verl import group_of_pool

            made = original(class_dict)
            setattr(made, _GROUP, group_of_pool(class_dict))
            return made

        return create_colocated

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(self: Any, *args: Any, **options: Any) -> Any:
            from gpuprof.integrations import _driver

            runtime_env = dict(self._options.get("runtime_env") or {})
            variables = runtime_env.get("env_vars") or {}
            if _driver.current() is None or "RANK" not in variables:
                return original(self, *args, **options)
            group = _driver.group_name(_group_of(self), variables.get("WG_PREFIX"))

            def start(planned: dict[str, Any]) -> Any:
                self.update_options({"runtime_env": planned})
                return original(self, *args, **options)

            use_gpu = inspect.signature(original).bind(self, *args, **options).arguments
            return _driver.make(
                group,
                int(variables["RANK"]),
                runtime_env,
                start,
                has_gpu=bool(use_gpu.get("use_gpu", True)),
            )

        return __call__

    for name in ("create_colocated_worker_cls", "create_colocated_worker_cls_fused"):
        replace(module, name, name_group, ["class_dict"])
    replace(module.RayClassWithInitArgs, "__call__", make, ["use_gpu"])


def _group_of(worker_class: Any) -> str:
    """verl's name of a worker group: the roles of its pool, else the class."""
    named = getattr(worker_class, _GROUP, None)
    if named is not None:
        return str(named)
    of = worker_class.cls
    return str(getattr(of, "__ray_actor_class__", type(of)).__name__)


def _trainer_v1(module: ModuleType) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, config: Any, *args: Any, **options: Any) -> None:
            _begin(config)
            original(self, config, *args, **options)
            self.fit = _ending(self.fit)
            self.step = _stepping(self, self.step)

        return __init__

    replace(module.PPOTrainer, "step", lambda original: original, ["timing_raw"])
    replace(module.PPOTrainer, "__init__", make, ["config"])


def _trainer_v0(module: ModuleType) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, config: Any, *args: Any, **options: Any) -> None:
            _begin(config)
            original(self, config, *args, **options)
            self.fit = _ending(self.fit)

        return __init__

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        def _start_profiling(self: Any, *args: Any, **options: Any) -> Any:
            from gpuprof.integrations import _driver

            _driver.begin_step(self.global_steps)
            return original(self, *args, **options)

        return _start_profiling

    def stopping(original: Callable[..., Any]) -> Callable[..., Any]:
        def _stop_profiling(self: Any, *args: Any, **options: Any) -> Any:
            from gpuprof.integrations import _driver

            result = original(self, *args, **options)
            _driver.end_step()
            return result

        return _stop_profiling

    replace(module.RayPPOTrainer, "__init__", make, ["config"])
    replace(module.RayPPOTrainer, "_start_profiling", starting)
    replace(module.RayPPOTrainer, "_stop_profiling", stopping)


def _ending(fit: Callable[..., Any]) -> Callable[..., Any]:
    """`fit`, a coroutine function in some trainers, with the end of the run behind it."""
    from gpuprof.integrations import _driver

    if inspect.iscoroutinefunction(fit):

        @wraps(fit)
        async def fit_then_end(*args: Any, **options: Any) -> Any:
            try:
                return await fit(*args, **options)
            finally:
                _driver.end()

        return fit_then_end

    @wraps(fit)
    def fit_and_end(*args: Any, **options: Any) -> Any:
        try:
            return fit(*args, **options)
        finally:
            _driver.end()

    return fit_and_end


def _stepping(trainer: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    from gpuprof.integrations import _driver

    @wraps(function)
    def step(*args: Any, **options: Any) -> Any:
        with _driver.step(trainer.global_steps):
            return function(*args, **options)

    return step


# What verl times itself


def _timers(module: ModuleType) -> None:
    """`marked_timer` and `simple_timer`: both call this generator."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def _timer(name: str, timing_raw: MutableMapping[str, float]) -> Iterator[None]:
            with timing().add_time(name):
                yield from original(name, timing_raw)

        return _timer

    replace(module, "_timer", make, ["name", "timing_raw"])


def _nvtx_ranges(module: ModuleType) -> None:
    """verl's own NVTX ranges: ours are in their place, so that no report has each twice."""
    marked = inspect.unwrap(module.marked_timer).__code__

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        def mark_start_range(
            message: str | None = None,
            color: str | None = None,
            domain: str | None = None,
            category: str | None = None,
        ) -> Any:
            if sys._getframe(1).f_code is marked:
                return None  # its timer opens the range
            return timing().add_time(message or "").__enter__()

        return mark_start_range

    def ending(original: Callable[..., Any]) -> Callable[..., Any]:
        def mark_end_range(range_id: Any) -> None:
            if range_id is not None:
                range_id.__exit__(None, None, None)

        return mark_end_range

    replace(module, "mark_start_range", starting, ["message"])
    replace(module, "mark_end_range", ending, ["range_id"])
    replace(module, "mark_annotate", _annotating, ["message"])


def _annotating(original: Callable[..., Any]) -> Callable[..., Any]:
    def mark_annotate(
        message: str | None = None,
        color: str | None = None,
        domain: str | None = None,
        category: str | None = None,
    ) -> Callable[..., Any]:
        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            return timer(message or function.__name__)(function)

        return decorator

    return mark_annotate


def _annotations(module: ModuleType) -> None:
    """`DistProfiler`: its annotations are ours, and it starts no profiler of its own."""

    def annotating(original: Callable[..., Any]) -> Callable[..., Any]:
        def annotate(cls: Any, *args: Any, **options: Any) -> Callable[..., Any]:
            theirs = original(cls, *args, **options)
            message = args[0] if args else options.get("message")

            def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
                name = message or options.get("role") or function.__name__
                decorated: Callable[..., Any] = theirs(timer(name)(function))
                return decorated

            return decorator

        return annotate

    def making(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            if self._tool in _TAKEN_OVER:
                self._enable = False  # also its finish hook, which gpuprof runs

        return __init__

    replace(module.DistProfiler, "annotate", annotating, ["message"])
    replace(module.DistProfiler, "__init__", making, ["config"])
    replace(module, "mark_annotate", _annotating, ["message"])

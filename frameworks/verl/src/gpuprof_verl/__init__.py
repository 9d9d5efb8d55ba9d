"""verl: its settings, its worker groups, its trainers' steps and its timers.

In the place of an edit of verl::

    import gpuprof_verl

    gpuprof_verl.install()  # before verl is imported

and nothing else: verl's trainers begin and end the run. A program with a loop of its own around
verl's worker groups says where::

    with gpuprof_verl.profile(config) as profiler:
        group = RayWorkerGroup(pool, RayClassWithInitArgs(Actor))
        for number in range(1, 6):
            with profiler.step(number):
                group.update_actor()
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuprof import timer, timing
from gpuprof.frameworks import (
    UnexpectedError,
    after_import,
    check,
    guarded,
    is_recorded,
    is_worker,
    log,
    nothing_profiled,
    replace,
    say,
    unknown_release,
    whole_workers,
)

from gpuprof_verl import _samples

if TYPE_CHECKING:
    from gpuprof.ray import Profiler
    from gpuprof.ray.driver import Run

__all__ = ["ON_RAY", "PACKAGE", "TRIED", "install", "install_in_worker", "profile"]

PACKAGE = "verl"
ON_RAY = True
TRIED = ("0.9.1",)
_TRAINERS = {
    "verl.trainer.ppo.v1.trainer_base": "PPOTrainer",
    "verl.trainer.ppo.ray_trainer": "RayPPOTrainer",
}
"""verl's trainers, today's and the older one: each module with its base class."""
_TAKEN_OVER = ("nsys", "torch")
"""verl's tools that gpuprof's backends serve."""
_GROUP = "_gpuprof_group"
_FITTING = "_gpuprof_fitting"
_off = False


def install() -> None:
    """Integrate gpuprof into verl in this process, and in the workers of its Ray job.

    Call it before verl is imported, and before Ray is started.
    """
    from gpuprof.ray import driver, hook_workers

    hook_workers(__name__, lambda: not _off, driver.end)
    after_import("verl.utils.config", _settings)
    after_import("verl.trainer.main_ppo", _controller, _no_controller)
    install_in_worker()


def install_in_worker() -> None:
    """The part of `install` for every process of the job."""
    after_import("verl.single_controller.ray.base", _workers, nothing_profiled)
    after_import("verl.utils.profiler.profile", _own_profiler)
    for module, trainer in _TRAINERS.items():
        after_import(module, partial(_run, trainer=trainer), nothing_profiled)
    unknown = unknown_release("verl", TRIED)
    if unknown:
        whole_workers(unknown)
        return
    for module, trainer in _TRAINERS.items():
        after_import(module, partial(_steps, trainer=trainer), whole_workers)
    after_import("verl.utils.profiler.performance", _timers)
    after_import("verl.utils.profiler.nvtx_profile", _ranges)
    after_import("verl.utils.profiler.profile", _ranges)
    after_import("verl.utils.profiler.profile", _annotations)
    after_import("verl.experimental.agent_loop.agent_loop", _samples.workers)
    after_import("verl.experimental.agent_loop.tool_agent_loop", _samples.tools)
    after_import("verl.workers.rollout.llm_server", _samples.clients)


def profile(config: Mapping[str, Any] | None) -> Run:
    """The run of a program with its own loop: a context manager that returns the `Profiler`.

    Args:
        config: verl's whole configuration; ``None``: gpuprof's own, as `gpuprof.ray.Profiler` has
            it.

    Raises:
        GpuprofError: as `Profiler` does, when the run begins.
    """
    from gpuprof.ray import driver

    install()
    _learn(config)
    return driver.Run(lambda: _begin(config))


def _begin(config: Any) -> Profiler:
    from gpuprof.ray import driver

    from gpuprof_verl.settings import CONTROLLER

    if config is None:
        return driver.begin("gpuprof", None)
    if driver.joins():
        return driver.begin("verl", config)
    # This process is the controller, which runs already.
    groups = driver.config_of("verl", config).worker_groups or ()
    others = ",".join(name for name in groups if name != CONTROLLER)
    overrides = (f"worker_groups=[{others}]",) if CONTROLLER in groups else ()
    return driver.begin("verl", config, overrides)


def _learn(config: Any) -> None:
    """Read the settings before Ray starts, so that a job without profiling gets no worker hook."""
    global _off
    from gpuprof.ray import driver

    settings = driver.config_of("gpuprof" if config is None else "verl", config)
    _off = settings.selects_nothing
    if _off:
        for note in settings.source.notes:
            log().warning("verl: %s", note)


# Hooks where verl checks settings, makes workers and counts steps


def _settings(module: ModuleType) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def validate_config(*args: Any, **options: Any) -> Any:
            guarded("verl: settings", lambda: _learn(args[0] if args else options["config"]))
            _controller_of_main()
            return original(*args, **options)

        return validate_config

    replace(module, "validate_config", make, ["config"])


def _controller(module: ModuleType) -> None:
    """Begin and end the run in `run_ppo`, which starts the controller.

    The controller, or an actor that it starts, makes the workers and counts the steps.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def run_ppo(config: Any, task_runner_class: Any, *args: Any, **options: Any) -> Any:
            from gpuprof.ray import driver

            guarded("verl: settings", lambda: _learn(config))
            if _off:
                return original(config, task_runner_class, *args, **options)
            runner = _TaskRunner(task_runner_class, config)
            try:
                return original(config, runner, *args, **options)
            finally:
                guarded("verl: the end of the run", driver.end)

        return run_ppo

    replace(module, "run_ppo", make, ["config", "task_runner_class"])


def _controller_of_main() -> None:
    """Call `_controller` for the running program, which ``python -m`` imports as `__main__`."""
    main = sys.modules["__main__"]
    if "run_ppo" in vars(main):
        try:
            _controller(main)
        except UnexpectedError as error:
            _no_controller(str(error))


def _no_controller(reason: str) -> None:
    say(reason, "verl's controller is not profiled")


class _TaskRunner:
    """Replaces the controller's actor class."""

    def __init__(self, actor_class: Any, config: Any, **options: Any) -> None:
        self._class, self._config, self._options = actor_class, config, options

    def options(self, **options: Any) -> _TaskRunner:
        return _TaskRunner(self._class, self._config, **{**self._options, **options})

    def remote(self, *args: Any, **options: Any) -> Any:
        from gpuprof.ray import driver

        from gpuprof_verl.settings import CONTROLLER

        own = dict(self._options)
        runtime_env = own.pop("runtime_env", None) or {}

        def start(worker_env: dict[str, Any]) -> Any:
            return self._class.options(**own, runtime_env=worker_env).remote(*args, **options)

        guarded("verl: the run", lambda: driver.begin("verl", self._config, elsewhere=True))
        return driver.make(CONTROLLER, 0, runtime_env, start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._class, name)


def _workers(module: ModuleType) -> None:
    def name_group(original: Callable[..., Any]) -> Callable[..., Any]:
        def create_colocated(class_dict: Mapping[str, Any]) -> Any:
            from gpuprof_verl.settings import group_of_pool

            worker_class = original(class_dict)
            guarded(
                "verl: groups", lambda: setattr(worker_class, _GROUP, group_of_pool(class_dict))
            )
            return worker_class

        return create_colocated

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(self: Any, *args: Any, **options: Any) -> Any:
            from gpuprof.ray import driver

            identity = guarded("verl: a worker", lambda: _identity(self))
            if driver.current() is None or identity is None:
                return original(self, *args, **options)
            group, rank, runtime_env = identity

            def start(worker_env: dict[str, Any]) -> Any:
                self.update_options({"runtime_env": worker_env})
                return original(self, *args, **options)

            arguments = inspect.signature(original).bind(self, *args, **options).arguments
            has_gpu = bool(arguments.get("use_gpu", True))
            return driver.make(group, rank, runtime_env, start, has_gpu)

        return __call__

    replace(module.RayClassWithInitArgs, "__call__", make, ["use_gpu"])
    for name in ("create_colocated_worker_cls", "create_colocated_worker_cls_fused"):
        replace(module, name, name_group, ["class_dict"])


def _identity(worker_class: Any) -> tuple[str, int, dict[str, Any]] | None:
    """Group, rank and runtime environment of a worker about to start; ``None`` without a rank."""
    from gpuprof.ray import driver

    runtime_env = dict(worker_class._options.get("runtime_env") or {})
    variables = runtime_env.get("env_vars") or {}
    if "RANK" not in variables:
        return None
    group = driver.group_name(_group_of(worker_class), variables.get("WG_PREFIX"))
    return group, int(variables["RANK"]), runtime_env


def _group_of(worker_class: Any) -> str:
    """verl's name for a worker group: from the roles of its pool, or else its class."""
    name = getattr(worker_class, _GROUP, None)
    if name is not None:
        return str(name)
    of = worker_class.cls
    return str(getattr(of, "__ray_actor_class__", type(of)).__name__)


def _run(module: ModuleType, trainer: str) -> None:
    """Begin the run when a trainer is made, and end the run after the trainer's `fit`.

    Covers subclasses, even if they never call the `__init__` of their base class.
    """
    base = getattr(module, trainer)
    check(base, "__init__", ["config"])
    theirs = base.__init_subclass__

    def __init_subclass__(cls: Any, /, **options: Any) -> None:
        theirs(**options)
        if "_start_profiling" not in vars(cls):  # else it counts other steps, or none
            guarded("verl: a trainer", lambda: _integrate(cls))

    base.__init_subclass__ = classmethod(__init_subclass__)
    classes = [base]
    for trainer_class in classes:
        classes += trainer_class.__subclasses__()
        _integrate(trainer_class)


def _integrate(trainer: Any) -> None:
    """Replace a class's own `__init__` and `fit`, if it has them."""

    def beginning(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, config: Any, *args: Any, **options: Any) -> None:
            guarded("verl: the run", lambda: _begin(config))
            original(self, config, *args, **options)

        return __init__

    if "__init__" in vars(trainer) and "config" in inspect.signature(trainer.__init__).parameters:
        replace(trainer, "__init__", beginning, ["config"])
    if "fit" in vars(trainer):
        replace(trainer, "fit", _ending)


def _steps(module: ModuleType, trainer: str) -> None:
    """Mark the steps that verl's own profiler sees: verl calls both methods in each step."""

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        def _start_profiling(self: Any, *args: Any, **options: Any) -> Any:
            from gpuprof.ray import driver

            guarded("verl: a step", lambda: driver.begin_step(_number(self)))
            return original(self, *args, **options)

        return _start_profiling

    def stopping(original: Callable[..., Any]) -> Callable[..., Any]:
        def _stop_profiling(self: Any, *args: Any, **options: Any) -> Any:
            result = original(self, *args, **options)
            guarded("verl: a step", lambda: _end_step(self))
            return result

        return _stop_profiling

    owner = getattr(module, trainer)
    check(owner, "_start_profiling")
    check(owner, "_stop_profiling")
    replace(owner, "_start_profiling", starting)
    replace(owner, "_stop_profiling", stopping)


def _number(trainer: Any) -> int:
    """The step that a trainer is in, as `global_profiler.steps` counts it."""
    version = getattr(trainer, "current_param_version", None)
    number: int = trainer.global_steps if version is None else version + 1
    return number


def _end_step(trainer: Any) -> None:
    """End the step, unless the asynchronous trainer's next update is for the same version."""
    from gpuprof.ray import driver

    if getattr(trainer, "local_trigger_step", 1) == 1:
        driver.end_step()


def _ending(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `fit`, a coroutine function in some trainers, so that the run ends after it."""
    if inspect.iscoroutinefunction(fit):

        async def fit_then_end(self: Any, *args: Any, **options: Any) -> Any:
            with _run_ends(self):
                return await fit(self, *args, **options)

        return fit_then_end

    def fit_and_end(self: Any, *args: Any, **options: Any) -> Any:
        with _run_ends(self):
            return fit(self, *args, **options)

    return fit_and_end


@contextmanager
def _run_ends(trainer: Any) -> Iterator[None]:
    """End the run after a trainer's outermost `fit`, which may call the `fit` of its base class."""
    from gpuprof.ray import driver

    if vars(trainer).get(_FITTING):
        yield
        return
    setattr(trainer, _FITTING, True)
    try:
        yield
    finally:
        setattr(trainer, _FITTING, False)
        guarded("verl: the end of the run", driver.end)


def _in_a_run() -> bool:
    """Whether this process takes part in a run of gpuprof."""
    from gpuprof.ray import driver

    return is_recorded() or driver.current() is not None


def _own_profiler(module: ModuleType) -> None:
    """Keep `DistProfiler` from starting a profiler that gpuprof runs instead."""

    def making(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            if is_worker() and getattr(self, "_tool", None) in _TAKEN_OVER:
                self._enable = False  # also its finish hook, which gpuprof runs

        return __init__

    replace(module.DistProfiler, "__init__", making, ["config"])


# Scopes where verl itself times


def _timers(module: ModuleType) -> None:
    """Open scopes in `_timer`, which both `marked_timer` and `simple_timer` call."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def _timer(name: str, timing_raw: MutableMapping[str, float]) -> Iterator[None]:
            with timing().add_time(name):
                yield from original(name, timing_raw)

        return _timer

    replace(module, "_timer", make, ["name", "timing_raw"])


def _ranges(module: ModuleType) -> None:
    """Open scopes where verl opens ranges, with NVTX or without.

    In a run, gpuprof's ranges replace verl's, so no report has a range twice.
    """
    timer_function = getattr(module, "marked_timer", None)
    within = inspect.unwrap(timer_function).__code__ if callable(timer_function) else None

    def starting(original: Callable[..., Any]) -> Callable[..., Any]:
        def mark_start_range(
            message: str | None = None,
            color: str | None = None,
            domain: str | None = None,
            category: str | None = None,
        ) -> Any:
            theirs = None if _in_a_run() else original(message, color, domain, category)
            if sys._getframe(1).f_code is within:
                return None, theirs  # its timer opens our range
            return timing().add_time(message or "").__enter__(), theirs

        return mark_start_range

    def ending(original: Callable[..., Any]) -> Callable[..., Any]:
        def mark_end_range(range_id: Any) -> None:
            ours, theirs = range_id
            if ours is not None:
                ours.__exit__(None, None, None)
            if theirs is not None:
                original(theirs)

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
            ours = timer(message or function.__name__)(function)
            return ours if _in_a_run() else original(message, color, domain, category)(ours)

        return decorator

    return mark_annotate


def _annotations(module: ModuleType) -> None:
    """Open a scope in each function that `DistProfiler.annotate` decorates."""

    def annotating(original: Callable[..., Any]) -> Callable[..., Any]:
        def annotate(cls: Any, *args: Any, **options: Any) -> Callable[..., Any]:
            theirs = original(cls, *args, **options)
            message = args[0] if args else options.get("message")

            def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
                name = message or options.get("role") or function.__name__
                wrapper: Callable[..., Any] = theirs(timer(name)(function))
                return wrapper

            return decorator

        return annotate

    replace(module.DistProfiler, "annotate", annotating, ["message"])

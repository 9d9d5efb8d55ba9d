"""The run of the process that makes a framework's workers and counts its steps.

For plugins of frameworks, which import it in functions only: it imports Ray.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpuprof._config.load import load
from gpuprof._config.schema import Config
from gpuprof._log import log
from gpuprof.errors import GpuprofError, OutputError, ToolError
from gpuprof.frameworks._changes import guarded, raise_errors, say, why_whole_workers
from gpuprof.frameworks._process import without_us
from gpuprof.ray import Profiler, link_from_ray_logs, without_profilers
from gpuprof.ray._joined import Joined, Starter, driving_session

__all__ = [
    "Run",
    "begin",
    "begin_step",
    "config_of",
    "current",
    "end",
    "end_step",
    "group_name",
    "joins",
    "make",
    "plan",
    "step",
]

_profiler: Profiler | None = None
_groups: dict[tuple[str, object], str] = {}
_step: AbstractContextManager[None] | None = None
_number: int | None = None
_given_up = False


def config_of(system: str, settings: Mapping[str, Any] | None) -> Config:
    """gpuprof's configuration from a framework's settings.

    Raises:
        ConfigError: with every invalid setting and its full path.
    """
    return load(settings, system=system)


def joins() -> bool:
    """Whether a run that another process began has started this process to drive it."""
    return driving_session() is not None


def begin(
    system: str,
    settings: Mapping[str, Any] | None,
    overrides: tuple[str, ...] = (),
    elsewhere: bool = False,
) -> Profiler:
    """The run of this process; the first call begins it, or joins the one that began elsewhere.

    A run that cannot begin profiles nothing, and says so.

    Args:
        system: whose settings these are: a name of ``gpuprof.systems``, or ``gpuprof``.
        settings: the framework's whole configuration; ``None``: as `gpuprof.ray.Profiler` has it.
        overrides: ``key.key=value``, as `gpuprof.ray.Profiler` takes them.
        elsewhere: a worker of this process will make the workers and count the steps.

    Raises:
        ConfigError: the settings are not valid.
        PluginError: they name a backend that cannot be used.
        GpuprofError: any other, with ``on_error: raise``.
    """
    global _profiler, _given_up
    if _profiler is None or _profiler.ended:
        _groups.clear()
        _given_up = False
        if log().level == logging.NOTSET:  # a framework's own logging would hide the receipt
            log().setLevel(logging.INFO)
        config = load(settings, system=system, overrides=overrides)
        raise_errors(config.on_error == "raise")
        reasons = why_whole_workers()
        if reasons:
            whole = whole_lives(config)
            overrides += whole
            if whole and not elsewhere:
                why = "; ".join(reasons)
                log().warning("%s: whole workers are profiled, not steps: %s", system, why)
        joins_run = joins() and not config.selects_nothing
        kind = Starter if elsewhere else Joined if joins_run else Profiler
        try:
            _profiler = kind(settings, system=system, overrides=overrides)
        except (ToolError, OutputError) as error:
            if config.on_error == "raise":
                raise
            _give_up(system, error)
            _profiler = Profiler(settings, system=system, overrides=(*overrides, "enabled=false"))
        # a full disk, which the profiler has said
        _given_up = _given_up or (_profiler.directory is None and not config.selects_nothing)
        if _profiler.directory is not None and not elsewhere:
            log().info(
                "%s: its own profiler stays off; gpuprof profiles %s as its settings say, into %s",
                system,
                ", ".join(_profiler.config.worker_groups or ()),
                _profiler.directory,
            )
        atexit.register(end)
    return _profiler


def take(profiler: Profiler) -> None:
    """Make `profiler`, whose run has begun, the run of this process."""
    global _profiler
    _groups.clear()
    if log().level == logging.NOTSET:  # a library's own logging would hide the receipt
        log().setLevel(logging.INFO)
    _profiler = profiler
    atexit.register(end)


def _give_up(what: str, error: Exception) -> None:
    """Stop profiling further workers: each would meet the same fault, after the same wait."""
    global _given_up
    _given_up = True
    say(f"{what}: {error}", "the job goes on without profiling")


def whole_lives(config: Config) -> tuple[str, ...]:
    """The overrides that give each worker one window, its whole life; empty if not needed."""
    selections = [config.selection(group) for group in config.worker_groups or ()]
    if not config.enabled or all(s.steps is None and not s.discrete for s in selections):
        return ()
    whole = {"steps": "null", "discrete": "false", "armed": "false"}
    return (
        *(f"{key}={value}" for key, value in whole.items()),
        *(
            f"groups.{group}.{key}={whole[key]}"
            for group, settings in config.groups.items()
            for key in whole.keys() & (settings or {}).keys()
        ),
    )


def current() -> Profiler | None:
    """The run of this process, if one has begun and not ended."""
    return None if _profiler is None or _profiler.ended else _profiler


def began() -> bool:
    """Whether a run has begun in this process, or gpuprof has said why none could."""
    return _profiler is not None


def end() -> None:
    """End the run: the last step, then the reports, the trees and the receipt."""
    atexit.unregister(end)
    end_step()
    profiler = current()
    if profiler is not None:
        profiler.finalize()
        if profiler.directory is not None:
            link_from_ray_logs(profiler.directory, profiler.config.backend)


def group_name(group: str, instance: object) -> str:
    """The name of a worker group; a second group of that name gets a number.

    Args:
        group: the framework's name.
        instance: anything that tells the framework's groups apart.
    """
    if (group, instance) not in _groups:
        same = sum(1 for name, _ in _groups if name == group)
        _groups[group, instance] = f"{group}.{same + 1}" if same else group
        if same:
            log().info("%s: the second group of this name is %s", group, _groups[group, instance])
    return _groups[group, instance]


def make(
    group: str,
    rank: int,
    runtime_env: Mapping[str, Any],
    start: Callable[[dict[str, Any]], Any],
    has_gpu: bool = False,
) -> Any:
    """Start a worker of the framework as one of the run.

    Args:
        runtime_env: the framework's own.
        start: starts the actor with a runtime environment, and returns its handle.
    """
    profiler = current()
    worker_env = guarded(f"{group}-{rank}", lambda: plan(group, rank, runtime_env, has_gpu))
    if profiler is None or worker_env is None:
        return start(dict(runtime_env))
    handle = start(worker_env)
    if not _given_up:
        try:
            profiler.add(handle, group=group, rank=rank)
        except GpuprofError as error:
            _heed(f"{group}-{rank}", error)
    return handle


def plan(
    group: str, rank: int, runtime_env: Mapping[str, Any], has_gpu: bool = False
) -> dict[str, Any]:
    """The runtime environment of a worker whose handle is added later."""
    profiler = current()
    # A framework that was told to profile wraps the worker itself, and one worker has one wrapper.
    own = without_profilers(runtime_env)
    if _given_up:
        return without_us(own)
    if profiler is None:
        return own
    gpus = {"num_gpus": 1} if has_gpu else {}
    try:
        options = profiler.worker_options(group=group, rank=rank, runtime_env=own, **gpus)
    except GpuprofError as error:
        _heed(f"{group}-{rank}", error)
        return without_us(own)
    worker_env: dict[str, Any] = options["runtime_env"]
    return worker_env


def _heed(worker: str, error: GpuprofError) -> None:
    profiler = current()
    if profiler is not None and profiler.config.on_error == "raise":
        raise error
    _give_up(worker, error)


def begin_step(number: int) -> None:
    """Begin a step of the run; the one before it ends."""
    global _step, _number
    if _number == number:
        return
    end_step()
    profiler = current()
    if profiler is not None:
        _number, _step = number, profiler.step(number)
        _step.__enter__()


def end_step() -> None:
    """End the step, if one is running."""
    global _step, _number
    step, _step, _number = _step, None, None
    if step is not None:
        step.__exit__(None, None, None)


def step(number: int, /, **attributes: float) -> AbstractContextManager[None]:
    """A step of the run, if there is one; see `Profiler.step`."""
    profiler = current()
    return nullcontext() if profiler is None else profiler.step(number, **attributes)


class Run(AbstractContextManager[Profiler]):
    """The run as a context manager, for a program with its own loop."""

    def __init__(self, begin: Callable[[], Profiler]) -> None:
        self._begin = begin

    def __enter__(self) -> Profiler:
        return self._begin()

    def __exit__(self, *error: object) -> None:
        end()

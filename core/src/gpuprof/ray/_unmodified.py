"""Records any unmodified job on Ray: each actor is a worker of the group named after its class.

`gpuprof run` installs this in the driver before the program starts. The run begins with
``ray.init``, and ends before ``ray.shutdown`` or with the program. The processes that run tasks
form another group. The key ``groups`` may give groups other names, or leave them out.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuprof._session import public
from gpuprof._session.ledger import PACED_STEPS
from gpuprof._shim.row import VARIABLE, decode
from gpuprof.errors import GpuprofError
from gpuprof.frameworks._changes import after_import, guarded, replace, say

if TYPE_CHECKING:
    from gpuprof.ray._joined import Launched

SETTINGS = "GPUPROF_LAUNCHED"
"""The variable with which `gpuprof run` passes its settings to the driver."""
_HELPERS = ("ray.data._internal", "ray.util", "ray.serve", "ray.experimental", "ray._private")
"""Modules of Ray whose actors do none of the job's work."""
_HELPER_CLASSES = frozenset(
    ("DatasetManager", "PlacementGroupCleaner", "PreemptionWatcher", "SynchronizationActor")
)
_MOST_ACTORS = 10_000
"""The most actors of a driver to record: a job may make an actor for each piece of work."""
_settings: dict[str, Any] = {}


def install() -> None:
    """Record the Ray job of this process, if it becomes the driver of one."""
    settings = os.environ.pop(SETTINGS, "")  # not for the programs that this one starts
    if settings:
        _settings.update(json.loads(settings))
        session = public.session()
        if session is not None:
            session.launched = True
        after_import("ray", _driver_of_ray)


def install_in_worker() -> None:
    """Start the session of a worker process, and record the actors that it makes."""
    if not os.environ.get(VARIABLE):
        return
    session = public.session()
    if session is not None:
        from gpuprof.ray._announced import connect

        _attempt("Ray: the driver", lambda: connect(session))
        _libraries()
    after_import("ray.actor", lambda module: _actors(module, _plan_in_worker))


def _attempt(what: str, call: Callable[[], Any]) -> Any:
    """Like `guarded`, but also log errors in gpuprof's settings instead of raising them.

    The job has already started and does not know of gpuprof's settings. With `on_error: raise`,
    errors in the settings are raised.
    """

    def attempt() -> Any:
        try:
            return call()
        except GpuprofError as error:
            if _settings.get("raises"):
                raise
            say(f"{what}: {error}")
            return None

    return guarded(what, attempt)


# The driver


def _driver_of_ray(ray: ModuleType) -> None:
    from gpuprof.ray import hook_workers

    public.mark_with(_step)
    hook_workers(__name__, _begin, _end, _prepare, _announce)
    replace(ray, "kill", _flushing, ["actor"])
    after_import("ray.actor", lambda module: _actors(module, _plan_in_driver))
    _libraries()


def _begin() -> bool:
    """Begin the run, unless it has begun. Returns whether there is a run."""
    from gpuprof.ray import driver

    if driver.current() is None:
        _attempt("Ray: the run", _begin_run)
    return driver.current() is not None


def _begin_run() -> None:
    from gpuprof.ray import driver
    from gpuprof.ray._joined import Launched

    profiler = Launched(_settings)
    _settings["raises"] = profiler.config.on_error == "raise"
    driver.take(profiler)
    session = public.session()
    if session is not None:
        session.launched = False  # workers may mark the steps, too: the run's end checks them all


def _end() -> None:
    from gpuprof.ray import driver

    guarded("Ray: the end", driver.end)


def _prepare(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Extend the job's runtime environment so that its tasks are recorded, too."""
    profiler = _launched()
    tasks_env = _attempt("Ray: tasks", lambda: profiler and profiler.tasks_runtime_env(runtime_env))
    return tasks_env or runtime_env


def _announce() -> None:
    """Tell workers, through the store of Ray's cluster, how to find the driver."""
    profiler = _launched()
    if profiler is not None:
        _attempt("Ray: the connections", profiler.announce)


def _flushing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Have the workers write what they have recorded before ``ray.kill`` kills an actor."""

    def kill(actor: Any, *args: Any, **options: Any) -> Any:
        profiler = _launched()
        if profiler is not None:
            _attempt("Ray: a kill", profiler.flush)
        return original(actor, *args, **options)

    return kill


def _launched() -> Launched | None:
    """The run of this process, if `gpuprof run` has started the process; else ``None``."""
    from gpuprof.ray import driver
    from gpuprof.ray._joined import Launched

    profiler = driver.current()
    return profiler if isinstance(profiler, Launched) else None


def _plan_in_driver(name: str, options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    from gpuprof.ray import start_as_ray_does
    from gpuprof.ray._announced import next_rank

    start_as_ray_does()  # the run begins with it
    profiler = _launched()
    if profiler is None or len(profiler.plan) >= _MOST_ACTORS:
        return {}, None
    own_env = dict(options.get("runtime_env") or {})
    group = profiler.group_of(name)
    if group is None:
        return profiler.leave_out(own_env), None
    rank = next_rank(profiler.run, group)
    gpus = {"num_gpus": options["num_gpus"]} if options.get("num_gpus") else {}
    worker_options = profiler.worker_options(group=group, rank=rank, runtime_env=own_env, **gpus)
    is_profiled = profiler.plan[-1].profiled
    profiler.expect_no_handle(group, rank)

    def add(handle: Any) -> None:
        # Unprofiled actors connect by themselves: a handle kept here would keep an actor alive.
        if is_profiled:
            profiler.add(handle, group=group, rank=rank)

    return worker_options["runtime_env"], add


# Actors, in the driver and in workers that make others


def _actors(module: ModuleType, plan: Callable[..., tuple[dict[str, Any], Any]]) -> None:
    """Give each actor a group and a rank."""

    def planning(name: str, options: dict[str, Any]) -> tuple[Any, Any] | None:
        from gpuprof.ray._announced import environment

        runtime_env, add = plan(name, options) if name else (_unrecorded(options), None)
        return (environment(runtime_env), add) if runtime_env else None

    def making(original: Callable[..., Any]) -> Callable[..., Any]:
        def _remote(
            self: Any,
            args: Any = None,
            kwargs: Any = None,
            **options: Any,
        ) -> Any:
            name = _attempt("Ray: an actor", lambda: _class_name(self))
            # with `get_if_exists`, Ray calls `_remote` again without it if the actor does not exist
            if name is None or options.get("get_if_exists"):
                return original(self, args, kwargs, **options)
            result = _attempt(f"Ray: {name}", lambda: planning(name, options))
            if result is None:
                return original(self, args, kwargs, **options)
            runtime_env, add = result
            handle = original(self, args, kwargs, **{**options, "runtime_env": runtime_env})
            if add is not None:
                _attempt(f"Ray: {name}", lambda: add(handle))
            return handle

        return _remote

    replace(module.ActorClass, "_remote", making, ["args", "kwargs"])


def _class_name(actor_class: Any) -> str:
    """The name of an actor's class; empty for the helpers of Ray's own libraries."""
    metadata = actor_class.__ray_metadata__
    name, module = metadata.class_name.rpartition(".")[2], metadata.modified_class.__module__
    if module == "ray.util.queue":  # whoever gets an item waits for the one that puts the item
        return str(name)
    if name == "ImplicitFunc":  # Ray Tune's class around the function of a trial
        return str(metadata.modified_class._name)
    if name == "_WrappedExecutable":  # Ray Train's class around another one, as RLlib's learners
        bases = (str(parent.__name__) for parent in metadata.modified_class.__mro__[1:])
        return next(base for base in bases if not base.startswith("_"))
    helper = module.startswith(_HELPERS) or name in _HELPER_CLASSES or name.startswith("_")
    return "" if helper else str(name)


def _unrecorded(options: dict[str, Any]) -> dict[str, Any]:
    """The runtime environment of a helper, without the variable inherited from its creator."""
    own_env = dict(options.get("runtime_env") or {})
    return {**own_env, "env_vars": {**(own_env.get("env_vars") or {}), VARIABLE: ""}}


# Workers


def _plan_in_worker(name: str, options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Plan an actor that this worker makes, and tell the driver, which opens its windows."""
    from gpuprof.ray._announced import announced_planning, next_rank, note_class, note_worker

    run = decode(os.environ[VARIABLE])["run"]
    planning = announced_planning(run)
    if planning is None:
        return {}, None
    own_env = dict(options.get("runtime_env") or {})
    note_class(run, name)
    group = planning.planner.config.recorded_as(name)
    if group is None:
        return planning.leave_out(own_env), None
    worker_plan = planning.worker(group, next_rank(run, group), options)
    worker_plan, runtime_env = planning.start(worker_plan, own_env)
    note_worker(run, worker_plan)
    return runtime_env, None


# Steps of libraries


_RLLIB = {
    "ray.rllib.env.single_agent_env_runner": ("SingleAgentEnvRunner", ("sample", "set_state")),
    "ray.rllib.env.multi_agent_env_runner": ("MultiAgentEnvRunner", ("sample", "set_state")),
    "ray.rllib.core.learner.learner": ("Learner", ("update",)),
    "ray.rllib.core.learner.learner_group": ("LearnerGroup", ("update",)),
    "ray.rllib.env.env_runner_group": ("EnvRunnerGroup", ("sync_weights",)),
}
"""RLlib's methods that get scopes, by module. The scopes are needed because RLlib sends its actors
functions to apply, and those functions have no name."""


def _libraries() -> None:
    """Mark the steps and the parts of libraries on Ray."""
    session = public.session()
    if session is None or "step_at" not in session.row:
        after_import("ray.rllib.algorithms.algorithm", _rllib_steps)
    after_import("ray.train.v2.api.train_fn_utils", _train_report)
    for module, (name, methods) in _RLLIB.items():
        after_import(module, functools.partial(_timed, name, methods))


def _timed(name: str, methods: Sequence[str], module: ModuleType) -> None:
    def timing_too(original: Callable[..., Any]) -> Callable[..., Any]:
        label = f"{name}.{original.__name__}"

        def method(*args: Any, **options: Any) -> Any:
            with guarded(label, lambda: public.timing().add_time(label)) or nullcontext():
                return original(*args, **options)

        return method

    for method in methods:
        replace(getattr(module, name), method, timing_too)


def _train_report(module: ModuleType) -> None:
    """Mark the calls of Ray Train's `report`, in which the workers wait for each other."""

    def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
        def report(*args: Any, **options: Any) -> Any:
            scope = guarded(
                "report", lambda: public.timing().add_time("report", waits_for="barrier")
            )
            with scope or nullcontext():
                return original(*args, **options)

        return report

    replace(module, "report", waiting)


def _step(number: int, **attributes: float) -> AbstractContextManager[object]:
    from gpuprof.ray import driver

    public.forget_library_steps()
    if driver.current() is not None:
        return driver.step(number, **attributes)
    session = public.session()
    return nullcontext() if session is None else public.own_step(session, number, **attributes)


def _rllib_steps(module: ModuleType) -> None:
    """Make each iteration of RLlib a step. Both `train` and Ray Tune call `Algorithm.step`."""

    def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *args: Any, **options: Any) -> Any:
            guarded("RLlib: its kind", lambda: _note_paced(self))
            with guarded("RLlib: a step", lambda: _step(self.iteration)) or nullcontext():
                return original(self, *args, **options)

        return step

    replace(module.Algorithm, "step", stepping)


def _note_paced(algorithm: Any) -> None:
    """Note once that iterations last a time set in the job's settings, as those of APPO do."""
    session = public.session()
    asynchronous = any(base.__name__ == "IMPALA" for base in type(algorithm).__mro__)
    if asynchronous and not _settings.get("paced") and session is not None and session.ledger:
        _settings["paced"] = True
        session.ledger.event(PACED_STEPS)

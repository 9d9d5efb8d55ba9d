"""Ray: a caller's `ray.get` waits for the method of an actor, or the task, that has the same id."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuprof._session.instruments.coroutines import Driven, Tasks
from gpuprof._session.instruments.instrument import (
    Call,
    Instrument,
    UnexpectedError,
    short_name,
)


def key_of(task_id: str) -> str:
    """The key of a call, by the hexadecimal id of its task."""
    return f"ray:{task_id}"


def _install(instrument: Instrument, ray: ModuleType) -> None:
    import asyncio  # Ray has imported it

    worker = ray._private.worker
    manager = type(worker.global_worker.function_actor_manager)
    # looked up here, so that another release of Ray fails here and not in a call
    is_ref = ray.ObjectRef
    infos = worker.global_worker.function_actor_manager.execution_infos
    known = hasattr(worker.Worker, "current_task_id") and worker.WORKER_MODE
    if not (isinstance(infos, dict) and callable(is_ref.task_id) and known):
        raise UnexpectedError("this release of Ray looks up an actor's methods in another way")

    def running() -> str | None:
        """The task that runs here; a driver has none, and Ray logs a warning if it is asked."""
        here = worker.global_worker
        if here.mode != worker.WORKER_MODE:
            return None
        task = here.current_task_id  # as `get_runtime_context` finds it, in four calls more
        return None if task.is_nil() else task.hex()

    def keys(refs: Any) -> tuple[str, ...]:
        own = running()  # what it has put in the store itself
        tasks = [ref.task_id().hex() for ref in refs if isinstance(ref, is_ref)]
        return tuple(dict.fromkeys([key_of(task) for task in tasks if task != own]))

    def get(object_refs: Any, **_: Any) -> Call | None:
        if isinstance(object_refs, is_ref):  # as mostly
            task = object_refs.task_id().hex()
            return Call("ray.get", "*", None if task == running() else key_of(task))
        several = isinstance(object_refs, (list, tuple))
        if several and any(isinstance(ref, is_ref) for ref in object_refs):
            return Call("ray.get", "*", lambda _: keys(object_refs))
        return None

    def wait(*_: Any, **__: Any) -> Call:
        return Call("ray.wait", "*", lambda result: keys(result[0]))

    def released(name: str) -> Call | None:
        task = running()
        return Call(name, None, key_of(task)) if task else None

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get_execution_info(*args: Any, **kwargs: Any) -> Any:
            info = original(*args, **kwargs)
            if instrument.on:
                try:
                    marked = _marked(instrument, info.function, released, tasks)
                    info = info._replace(function=marked)
                except Exception as error:
                    instrument.fail(error)
            return info

        return get_execution_info

    def sending(function: Callable[..., Any]) -> Callable[..., Any]:
        """Note each call that is sent, and the calls whose results are its arguments."""

        @functools.wraps(function)
        def send(self: Any, *args: Any, **options: Any) -> Any:
            started = time.perf_counter_ns()
            refs = function(self, *args, **options)
            if instrument.on:
                try:
                    first = refs[0] if isinstance(refs, list) else refs
                    if isinstance(first, is_ref):
                        needs = [
                            key_of(ref.task_id().hex())
                            for ref in _arguments(args, options)
                            if isinstance(ref, is_ref)
                        ]
                        key = key_of(first.task_id().hex())
                        instrument.note_sent(started, key, tuple(needs))
                except Exception as error:
                    instrument.fail(error)
            return refs

        return send

    def key_of_any(awaited: Any) -> str | None:
        return key_of(awaited.task_id().hex()) if isinstance(awaited, is_ref) else None

    tasks = Tasks(instrument, asyncio, key_of_any)
    instrument.replace([ray.actor.ActorHandle], "_actor_method_call", sending)
    instrument.replace([ray.remote_function.RemoteFunction], "_remote", sending)
    instrument.around([ray, worker], "get", get)
    instrument.around([ray, worker], "wait", wait)
    instrument.replace([manager], "get_execution_info", make)
    infos.clear()  # Ray remembers what the manager returned
    instrument.at_end(infos.clear)


def _arguments(args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    """The job's arguments among those of Ray's own function: a list or tuple, and a mapping."""
    arguments: list[Any] = []
    # of one method they stand behind its name
    for given in (*args, options.get("args"), options.get("kwargs")):
        if given and isinstance(given, (list, tuple)):
            arguments += given
        elif given and isinstance(given, dict):
            arguments += given.values()
    return arguments


def _marked(
    instrument: Instrument,
    function: Callable[..., Any],
    released: Callable[[str], Call | None],
    tasks: Tasks,
) -> Callable[..., Any]:
    """A task, or the executor of an actor's method, with a scope around each call.

    A generator's calls are not: their results come one by one.
    """
    method = getattr(function, "method", function)
    name = short_name(method)
    internal = getattr(function, "name", "").startswith("__ray")
    if internal or inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        return function

    is_coroutine = inspect.iscoroutinefunction(method)

    def before(*_: Any, **__: Any) -> Call | None:
        if is_coroutine:
            tasks.follow()
        return released(name)

    # keeps `name` and `method`, which Ray looks at
    @functools.wraps(function)
    def executor(*args: Any, **kwargs: Any) -> Any:
        if not instrument.on:
            return function(*args, **kwargs)
        if is_coroutine:
            coroutine = Driven(instrument, function(*args, **kwargs))
            return instrument.call_coroutine(before, coroutine)
        return instrument.call(before, function, args, kwargs)

    return executor


INSTALL = {"ray": _install}

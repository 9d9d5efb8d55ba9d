"""Ray: `ray.get` waits for the actor's method or the task whose id is in the object reference."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

from gpuprof_timing.instrument import NOT_RANDOM, KeyOf, call_linked, follow, link_calls

from gpuprof._session import dump
from gpuprof._session.instruments.coroutines import Driven, Tasks
from gpuprof._session.instruments.generators import FIRST, Stream
from gpuprof._session.instruments.instrument import (
    Call,
    Instrument,
    UnexpectedError,
    short_name,
)
from gpuprof._session.ledger import KEY

SERIALIZE = "ray.serialize"
"""The name of the scope around pickling: of a call's arguments, or of its result once it is over.
"""
PUT = "ray.put"
"""The name of the scope around putting something into Ray's store: also an argument of a call."""
_LARGE = 100_000
"""Bytes from which Ray puts an argument into its store: less travels with the call."""
_MOST_PARTS = 16
"""Elements of an argument whose sizes are added up."""
_ARRAYS = ("numpy", "torch")
"""Packages whose arrays know their bytes."""
_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
"""The types of values that take hardly any time to pickle."""
_TASK = 24
"""The length of a task's id in bytes. The id of each of its results begins with these bytes; the
result's number follows. The ids of a driver and of an actor's creation begin with `NOT_RANDOM`."""
_MOST_AWAITED = 1_000
"""The most calls to name among those that a process waits for at once."""
_MOST_STREAMS = 10_000
"""The most calls of generators to remember; the oldest are forgotten first."""


class _Ended(threading.local):
    """The key of the call that ended last in this thread, until Ray pickles its result."""

    key: bytes | None = None


def _key(binary: bytes) -> bytes:
    """The key of a call, from the id of the call or of a result: as many bytes as are unique."""
    key = binary[:KEY]
    return key if key != NOT_RANDOM else binary[:_TASK]


def _item_key(call: bytes, number: int | None) -> bytes:
    """The key of the item with a number; for ``None``, the key of the call."""
    return call if number is None else call + number.to_bytes(4, "little")


# While a call waits for another process, gpuprof's memory leaves the processor's caches. Loading it
# again is most of gpuprof's cost, so the code that each call runs touches little, and is in C.


def _install(instrument: Instrument, ray: ModuleType) -> None:
    import asyncio  # Ray has imported it

    worker = ray._private.worker
    manager = type(worker.global_worker.function_actor_manager)
    # looked up here, so that another release of Ray fails here and not in a call
    is_ref = ray.ObjectRef
    infos = worker.global_worker.function_actor_manager.execution_infos
    has_parts = hasattr(worker.Worker, "current_task_id") and worker.WORKER_MODE
    if not (isinstance(infos, dict) and has_parts):
        raise UnexpectedError("this release of Ray looks up an actor's methods in another way")
    result = is_ref(bytes(range(is_ref.size())))
    if result.task_id().binary() != result.binary()[:_TASK]:
        raise UnexpectedError("in this release of Ray the id of a result has another form")
    this_worker, in_worker, no_task = worker.global_worker, worker.WORKER_MODE, ray.TaskID.nil()
    recording, fail = instrument.recording, instrument.fail

    def other_task(task_id: Any) -> bytes | None:
        return None if task_id == no_task else task_id.binary()

    key_of_task = KeyOf(ray.TaskID, ray.TaskID.binary, other_task)

    def running() -> bytes | None:
        """The key of the task that runs here; ``None`` without one.

        A driver runs no task, and Ray would warn if asked for one there.
        """
        if this_worker.mode != in_worker:
            return None
        # what `current_task_id` does
        task: bytes | None = key_of_task(this_worker.core_worker.get_current_task_id())
        return task

    streams: dict[bytes, None] = {}  # the calls of generators that this process has sent

    def key(ref: Any) -> bytes:
        binary: bytes = ref.binary()
        call = binary[:KEY]
        if call == NOT_RANDOM:
            return binary[:_TASK]
        if call not in streams:
            return call
        number = int.from_bytes(binary[_TASK:], "little")
        return _item_key(call, None if number < FIRST else number)

    def awaited(ref: Any) -> bytes | None:
        """The key to wait for; ``None`` for what this task itself has put in the store."""
        in_task = this_worker.mode == in_worker
        key_of_awaited.is_short = not in_task and not streams
        link = key(ref)
        return None if in_task and link == running() else link

    key_of_sent = KeyOf(is_ref, is_ref.binary, key)
    key_of_awaited = KeyOf(is_ref, is_ref.binary, awaited)
    key_of_awaited.is_short = False  # `awaited` knows better
    instrument.at_end(functools.partial(setattr, key_of_awaited, "kind", None))  # no more links

    def keys(refs: Any) -> tuple[bytes, ...]:
        own = running()  # the key of objects that this task itself has put in the store
        has_parts = [key(ref) for ref in refs if isinstance(ref, is_ref)]
        return tuple(dict.fromkeys([key for key in has_parts if key != own]))

    def getting(object_refs: Any, **_: Any) -> Call | None:
        several = isinstance(object_refs, (list, tuple))
        if several and any(isinstance(ref, is_ref) for ref in object_refs):
            return Call("ray.get", "*", lambda _: keys(object_refs))
        return None

    def get_one(original: Callable[..., Any]) -> Callable[..., Any]:
        get_several = instrument.marked(original, getting)

        # without `is_compiling`: torch compiles nothing that waits for another process
        linked = link_calls(original, recording, "ray.get", "*", key_of_awaited, get_several, fail)
        return functools.wraps(original)(linked)

    def wait(*_: Any, **__: Any) -> Call:
        return Call("ray.wait", "*", lambda result: keys(result[0]))

    def putting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def put(*args: Any, **kwargs: Any) -> Any:
            ref = original(*args, **kwargs)
            # sends no request, as this process owns the object; other releases may lack this
            with suppress(AttributeError, KeyError, ValueError):
                (about,) = this_worker.core_worker.get_local_object_locations([ref]).values()
                if about["object_size"]:
                    instrument.note_size(about["object_size"])
            return ref

        return instrument.marked(put, lambda *_, **__: Call(PUT))

    ended = _Ended()

    def serializing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def serialize(context: Any, value: Any, *args: Any, **options: Any) -> Any:
            link, ended.key = ended.key, None
            if type(value) in _PLAIN or not instrument.on:
                return original(context, value, *args, **options)
            called = context, value, *args
            return call_linked(recording, SERIALIZE, None, link, original, called, options, fail)

        return serialize

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get_execution_info(*args: Any, **kwargs: Any) -> Any:
            info = original(*args, **kwargs)
            if instrument.on and this_worker.mode == in_worker:
                actor = this_worker.actors.get(this_worker.actor_id)
                if actor is not None:
                    instrument.guarded(instrument.note_actor, type(actor))
                # bound here, as `running` would look it up in each call
                current_id = this_worker.core_worker.get_current_task_id
                name = instrument.guarded(_name, info.function, actor)
                executor = instrument.guarded(
                    _marked, instrument, name, info.function, key_of_task, current_id, tasks, ended
                )
                info = info._replace(function=executor or info.function)
            return info

        return get_execution_info

    def sending(function: Callable[..., Any]) -> Callable[..., Any]:
        """Note each call that is sent, and the calls whose results are its arguments.

        Ray copies a large argument into its store for each call, as `ray.put` does.
        """
        followed = follow(function, time.perf_counter_ns, note_sent, key_of_sent, add_sent)

        def put(*args: Any, **options: Any) -> Call | None:
            arguments = _arguments(args[1:], options)
            return Call(PUT) if any(map(_is_large, arguments)) else None

        @functools.wraps(function)
        def send(*args: Any, **options: Any) -> Any:
            if instrument.on and (len(args) > 1 or options):
                return instrument.call(put, followed, args, options)
            return followed(*args, **options)

        return send

    add_sent = instrument.note_sent

    def note_sent(start: int, refs: Any, args: Any, options: Any) -> None:
        """Note a call with arguments, or several results, or a generator's."""
        if not instrument.on:
            return
        try:
            first = refs if isinstance(refs, is_ref) else first_of(refs)
            if first is not None:
                arguments = _arguments(args[1:], options) if args else ()
                needs = tuple([key(ref) for ref in arguments if isinstance(ref, is_ref)])
                add_sent(start, key(first), needs)
        except Exception as error:
            fail(error)

    def first_of(refs: Any) -> Any:
        """The first of several results of a call, or the reference of a generator call.

        ``None`` if the call has no result.
        """
        if isinstance(refs, list):
            return refs[0]
        stream = getattr(refs, "_generator_ref", None)
        if stream is not None:
            streams[_key(stream.binary())] = None
            key_of_awaited.is_short = False
            if len(streams) > _MOST_STREAMS:
                del streams[next(iter(streams))]
        return stream

    def calling(function: Callable[..., Any]) -> Callable[..., Any]:
        """Like `sending`, and call the hook before each call of an actor's method is sent."""
        send, note_called = sending(function), instrument.note_called
        if note_called is None:
            return send

        @functools.wraps(function)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            if instrument.on:
                try:
                    descriptor = self._ray_actor_creation_function_descriptor
                    note_called(descriptor.class_name.rpartition(".")[2], args[0], self._actor_id)
                except Exception as error:
                    instrument.fail(error)
            return send(self, *args, **options)

        return call

    tasks = Tasks(instrument, asyncio, lambda ref: key(ref) if isinstance(ref, is_ref) else None)
    instrument.replace([ray.actor.ActorHandle], "_actor_method_call", calling)
    instrument.replace([ray.remote_function.RemoteFunction], "_remote", sending)
    instrument.replace([ray, worker], "get", get_one)
    instrument.around([ray, worker], "wait", wait)
    instrument.replace([ray, worker], "put", putting)
    pickling: Any = getattr(ray._private, "serialization", None)
    if hasattr(pickling, "SerializationContext"):  # other releases may lack it
        instrument.replace([pickling.SerializationContext], "serialize", serializing)
    instrument.replace([manager], "get_execution_info", make)
    infos.clear()  # Ray caches what the manager has returned
    instrument.at_end(infos.clear)
    _tell_now(worker, is_ref, key)


def _tell_now(worker: ModuleType, is_ref: type[Any], key: Callable[[Any], bytes]) -> None:
    """Tell `gpuprof stacks` which calls this process waits for, and which actor it is."""

    def calls(refs: Any) -> list[tuple[str, str]]:
        """The key of each call, and the id of the actor that runs it, which the call's id has."""
        several = refs if isinstance(refs, (list, tuple)) else [refs]
        return [
            (key(ref).hex(), ref.binary()[KEY:_TASK].hex())
            for ref in several[:_MOST_AWAITED]
            if isinstance(ref, is_ref) and ref.binary()[:KEY] != NOT_RANDOM  # those are objects
        ]

    def getting(frame: FrameType) -> dict[str, Any]:
        return {"on": "ray.get", "calls": calls(frame.f_locals["object_refs"])}

    def waiting(frame: FrameType) -> dict[str, Any]:
        return {"on": "ray.wait", "calls": calls(frame.f_locals["ray_waitables"])}

    dump.waits[inspect.unwrap(worker.get).__code__] = getting
    dump.waits[inspect.unwrap(worker.wait).__code__] = waiting
    dump.waits[Instrument.call_coroutine.__code__] = _runs_coroutine
    dump.states["actor"] = lambda: worker.global_worker.actor_id.hex()


def _runs(frame: FrameType) -> dict[str, Any] | None:
    task = frame.f_locals.get("task")
    return {"runs": task.hex(), "name": frame.f_locals["name"]} if task else None


def _runs_coroutine(frame: FrameType) -> dict[str, Any] | None:
    call = frame.f_locals.get("call")
    if isinstance(call, Call) and isinstance(call.key, bytes):
        return {"runs": call.key.hex(), "name": call.name}
    return None


def _arguments(args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    """The job's arguments, out of those of Ray's own function.

    Ray's function gets the job's as a list or tuple, and a mapping.
    """
    arguments: list[Any] = []
    # for an actor's method, they follow its name
    for argument in (*args, options.get("args"), options.get("kwargs")):
        if argument and isinstance(argument, (list, tuple)):
            arguments += argument
        elif argument and isinstance(argument, dict):
            arguments += argument.values()
    return arguments


def _is_large(argument: Any) -> bool:
    """Whether Ray puts an argument into its store: an array, bytes, or a few of these."""
    if isinstance(argument, dict):
        parts: Any = argument.values()
    else:
        parts = argument if isinstance(argument, (list, tuple)) else (argument,)
    return sum(map(_bytes_of, islice(parts, _MOST_PARTS))) > _LARGE


def _bytes_of(value: Any) -> int:
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    if str(type(value).__module__).partition(".")[0] not in _ARRAYS:
        return 0
    try:
        return int(value.nbytes)
    except Exception:  # a scalar type has none, and a sparse tensor raises
        return 0


def _name(function: Callable[..., Any], actor: Any) -> str:
    """The name of a task, or of an actor's method, from its executor.

    A function that the job made a method, as verl does with those of the roles in one worker, has
    the name under which it is called.
    """
    name = short_name(getattr(function, "method", function))
    called = getattr(function, "name", "")
    return f"{type(actor).__name__}.{called}" if called and "." not in name else name


def _marked(
    instrument: Instrument,
    name: str,
    function: Callable[..., Any],
    key_of_task: KeyOf,
    current_id: Callable[[], Any],
    tasks: Tasks,
    ended: _Ended,
) -> Callable[..., Any]:
    """Wrap a task, or the executor of an actor's method, so that each call has a scope.

    A call of a generator has a scope around each item instead.
    """
    method = getattr(function, "method", function)
    internal = getattr(function, "name", "").startswith("__ray")
    if internal:
        return function

    recording, fail = instrument.recording, instrument.fail

    def running() -> Any:
        return key_of_task(current_id())

    def before(*_: Any, **__: Any) -> Call | None:
        tasks.follow()
        task = running()
        return Call(name, None, task) if task else None

    def coroutine(*args: Any, **kwargs: Any) -> Any:
        return instrument.call_coroutine(before, Driven(instrument, function(*args, **kwargs)))

    def generator(*args: Any, **kwargs: Any) -> Any:
        stream = new_stream()
        items = function(*args, **kwargs)
        done = functools.partial(setattr, ended, "key")
        return items if stream is None else stream.items(items, done)

    def async_generator(*args: Any, **kwargs: Any) -> Any:
        stream = new_stream()
        items = function(*args, **kwargs)
        return items if stream is None else stream.async_items(items, tasks.follow)

    def new_stream() -> Stream | None:
        task = instrument.guarded(running)
        return task and Stream(instrument, name, functools.partial(_item_key, task))

    def executor(*args: Any, **kwargs: Any) -> Any:
        ended.key = None
        try:
            task = key_of_task(current_id())
        except Exception as error:
            fail(error)
            task = None
        if task is None:
            return function(*args, **kwargs)
        result = call_linked(recording, name, None, task, function, args, kwargs, fail)
        ended.key = task
        return result

    dump.waits[executor.__code__] = _runs
    marked = executor
    if inspect.iscoroutinefunction(method):
        marked = coroutine
    elif inspect.isgeneratorfunction(method):
        marked = generator
    elif inspect.isasyncgenfunction(method):
        marked = async_generator
    return functools.wraps(function)(marked)  # keeps `name` and `method`, which Ray looks at


INSTALL = {"ray": _install}

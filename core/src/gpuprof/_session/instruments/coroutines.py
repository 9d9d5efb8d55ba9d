"""Coroutines: a suspended coroutine does not work, but waits for the object that it awaits."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Coroutine
from types import CoroutineType, ModuleType
from typing import Any

from gpuprof_timing.instrument import IN_LOOP, LinkedScope, fixed_cursor, make_linked

from gpuprof._session.instruments.instrument import Call, Instrument, Key, new_key, short_name
from gpuprof._session.ledger import KEY as KEY_SIZE

AWAIT, SLEEP = "await", "asyncio.sleep"
LIMITS = ("Semaphore.acquire", "Lock.acquire")
"""The names of the scopes around a wait until fewer tasks are in a part of the job's code."""
SUSPENDED = (AWAIT, *LIMITS, SLEEP)
"""The names of all scopes around a suspension."""
RUN = "asyncio.run"
"""The name of the scope around an event loop that runs until a task has ended."""
KEY = "_gpuprof_key"
"""The attribute in which a future keeps the key that its end releases."""
_LONGEST_SLEEP = 1e6
"""Seconds; a job may sleep for an infinite time."""


class Driven(Coroutine[Any, Any, Any]):
    """A coroutine with a scope around each of its suspensions.

    Args:
        instrument: puts in the scopes. A fault of it ends the marking, and the coroutine goes on.
        coroutine: the job's coroutine.
        name: the name of a scope around each run between two suspensions, for a task; empty if the
            coroutine already runs inside a scope.
        key: the key that the end of the coroutine releases.
        owner: the object that `coroutine` drives, such as an asynchronous generator; ``None`` means
            `coroutine` itself.
    """

    __slots__ = (
        "__weakref__", "_began", "_coroutine", "_instrument", "_key", "_name", "_owner", "_scope",
    )  # fmt: skip

    def __init__(
        self,
        instrument: Instrument,
        coroutine: Any,
        name: str = "",
        key: Key | None = None,
        owner: Any = None,
    ) -> None:
        self._instrument = instrument
        self._coroutine = coroutine
        self._name = name
        self._key = key
        self._owner = coroutine if owner is None else owner
        self._began = False
        self._scope: LinkedScope | None = None

    def __getattr__(self, name: str) -> Any:  # `cr_frame` and others, which debuggers look at
        return getattr(self._coroutine, name)

    def __await__(self) -> Driven:
        return self

    __iter__ = __await__

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        """Resume the coroutine until it is suspended again."""
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """Resume the coroutine with an error, until it is suspended again."""
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        """End the coroutine where it is suspended."""
        self._resume()
        try:
            self._coroutine.close()
        finally:
            self._leave(None)

    def _step(self, resume: Callable[..., Any], *arguments: Any) -> Any:
        self._resume()
        try:
            future = resume(*arguments)
        except BaseException:  # the coroutine has returned, or failed
            if self._key is not None and self._scope is None:
                self._guarded(self._enter, self._name, None, None)
            self._leave(self._key)
            raise
        self._leave(None)
        self._guarded(self._suspend, future)
        return future

    def _guarded(self, mark: Callable[..., object], *arguments: Any) -> None:
        if self._instrument.on:
            self._instrument.guarded(mark, *arguments)

    def _suspend(self, future: Any) -> None:
        inner = _innermost(self._owner)
        if _code(inner) is _sleep():
            self._enter(SLEEP, "*", _due(inner, self._instrument.recording.clock()))
        else:
            name = _limits().get(_code(inner), AWAIT)
            self._enter(name, "*", functools.partial(_keys, future, inner))

    def _resume(self) -> None:
        self._leave(None)
        if self._name:
            self._guarded(self._begin_step)

    def _begin_step(self) -> None:
        recording = self._instrument.recording
        if not self._began:  # not inside the scope that made the task, which goes on meanwhile
            self._began = True
            recording.set_cursor(fixed_cursor(recording.top, IN_LOOP))
        outer: Any = recording.get_cursor().scope
        while outer.node is None:
            outer = outer.parent
        if outer is recording.top:  # else the job has a scope of its own around this step
            self._enter(self._name, None, None)

    def _enter(self, name: str, waits_for: str | None, key: Any) -> None:
        recording = self._instrument.recording
        if recording.enabled:
            scope = make_linked(recording, name, waits_for, key)
            scope._crosses_tasks = waits_for is not None
            scope.__enter__()
            self._scope = scope

    def _leave(self, key: Key | None) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            if key is not None:
                scope.link = key
            scope.__exit__(None, None, None)


class Tasks:
    """Follows the tasks of event loops, and the waits for these tasks.

    Args:
        instrument: puts in the scopes.
        asyncio: the asyncio module.
        key_of: returns the key of an object that a task merely awaits; ``None`` if the object has
            no key.
    """

    def __init__(
        self, instrument: Instrument, asyncio: ModuleType, key_of: Callable[[Any], Key | None]
    ) -> None:
        self._instrument = instrument
        self._asyncio = asyncio
        self._key_of = key_of
        self._keys: weakref.WeakKeyDictionary[Any, Key | None] = weakref.WeakKeyDictionary()
        """The key of each coroutine that is run until its end, once it is a task."""
        # In a notebook, recording begins inside a task of the running loop: leave that loop alone.
        self._left_alone = asyncio._get_running_loop()
        loops = [asyncio.BaseEventLoop]
        instrument.replace([asyncio.futures, asyncio], "wrap_future", self._wrapping)
        instrument.replace(loops, "create_task", self._creating)
        instrument.around(loops, "run_until_complete", self._running)
        for kind in (asyncio.Semaphore, asyncio.Lock):
            instrument.around(
                [kind], "release", functools.partial(_releasing, f"{kind.__name__}.release")
            )

    def follow(self) -> None:
        """Drive all tasks that the running loop makes from now on, whatever the loop's class."""
        loop = self._asyncio.get_running_loop()
        if loop is self._left_alone:
            self._left_alone = None
        factory = loop.get_task_factory()
        if isinstance(loop, self._asyncio.BaseEventLoop) or getattr(factory, KEY, None) is self:
            return
        task = self._asyncio.Task

        def make(loop: Any, coroutine: Any, **options: Any) -> Any:
            if factory is None:
                return task(coroutine, loop=loop, **options)
            return factory(loop, coroutine, **options)

        def put_back() -> None:
            if loop.get_task_factory() is driving:
                loop.set_task_factory(factory)

        driving = self._creating(make)
        setattr(driving, KEY, self)
        loop.set_task_factory(driving)
        self._instrument.at_end(put_back)

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create_task(loop: Any, coroutine: Any, **options: Any) -> Any:
            key = None
            if self._instrument.on and loop is not self._left_alone:
                driven = self._instrument.guarded(self._driven, coroutine)
                coroutine, key = driven or (coroutine, None)
            return self._keyed(original(loop, coroutine, **options), key)

        return create_task

    def _running(self, loop: Any, future: Any) -> Call | None:
        key: Key | None = getattr(future, KEY, None)
        if loop is self._left_alone or not (key is not None or _is_the_jobs(future)):
            return None
        if key is not None:
            return Call(RUN, "*", key)
        self._keys[future] = None
        return Call(RUN, "*", lambda _: self._keys[future])

    def _driven(self, coroutine: Any) -> tuple[Any, Key | None]:
        if getattr(coroutine, "__name__", "") == "_wrap_awaitable":  # as `gather` does with others
            frame = getattr(coroutine, "cr_frame", None) or coroutine.gi_frame
            return coroutine, self._key_of(frame.f_locals.get("awaitable"))
        if not _is_the_jobs(coroutine):
            return coroutine, None
        key = new_key("task")
        if coroutine in self._keys:
            self._keys[coroutine] = key
        return Driven(self._instrument, coroutine, short_name(coroutine), key), key

    def _wrapping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrap_future(future: Any, *args: Any, **options: Any) -> Any:
            result = original(future, *args, **options)
            if not self._instrument.on:
                return result
            key = self._instrument.guarded(self._key_of, getattr(future, "object_ref", None))
            return self._keyed(result, key or getattr(future, KEY, None))

        return wrap_future

    def _keyed(self, future: Any, key: Key | None) -> Any:
        if key is not None:
            self._instrument.guarded(setattr, future, KEY, key)
        return future


@functools.lru_cache(maxsize=1)
def _sleep() -> Any:
    import asyncio

    return asyncio.sleep.__code__


@functools.lru_cache(maxsize=1)
def _limits() -> dict[Any, str]:
    """The code of the coroutines that wait for a semaphore or a lock, with the scope's name."""
    import asyncio

    codes = asyncio.Semaphore.acquire.__code__, asyncio.Lock.acquire.__code__
    return dict(zip(codes, LIMITS, strict=True))


def _releasing(name: str, semaphore_or_lock: Any) -> Call | None:
    """How to mark a release that wakes a task: the first of those that wait."""
    waiters = getattr(semaphore_or_lock, "_waiters", None) or ()
    waiter = next((future for future in waiters if not future.done()), None)
    if waiter is None:
        return None
    key = new_key("limit")
    setattr(waiter, KEY, key)
    return Call(name, None, key)


@functools.lru_cache(maxsize=1)
def _waiters() -> dict[Any, str]:
    """The code of asyncio's coroutines that wait for given futures, with the variable for these."""
    from asyncio import tasks

    return {tasks._wait.__code__: "fs", tasks.wait_for.__code__: "fut"}  # type: ignore[attr-defined]


def _is_the_jobs(coroutine: Any) -> bool:
    """Whether this is an unfinished coroutine of the job, not of gpuprof or an event loop."""
    if type(coroutine) is not CoroutineType or coroutine.cr_frame is None:
        return False
    module = str(coroutine.cr_frame.f_globals.get("__name__"))
    return not module.startswith(("gpuprof.", "asyncio.base_events"))


def _code(coroutine: Any) -> Any:
    return getattr(coroutine, "cr_code", None)


def _innermost(coroutine: Any) -> Any:
    """The innermost coroutine: the one that awaits something other than a coroutine."""
    inner = getattr(coroutine, "ag_await", None) or getattr(coroutine, "cr_await", None)
    while type(inner) is CoroutineType:
        coroutine, inner = inner, inner.cr_await
    return coroutine


def _due(sleep: Any, now: int) -> bytes:
    """The key of a sleep: when it is over, as the bytes of a time in nanoseconds.

    From then on the coroutine only waits for its event loop.
    """
    seconds = min(max(0.0, sleep.cr_frame.f_locals["delay"]), _LONGEST_SLEEP)
    return (now + int(seconds * 1e9)).to_bytes(KEY_SIZE, "little")


def _keys(future_or_task: Any, by: Any) -> tuple[str, ...]:
    """The keys of the futures that were waited for; empty unless all are known.

    Args:
        future_or_task: the awaited object.
        by: the innermost coroutine, which awaits it.
    """
    key = getattr(future_or_task, KEY, None)
    if key is not None:
        return (key,)
    several = getattr(future_or_task, "_children", None)  # of `gather`
    if several is None and _code(by) in _waiters() and by.cr_frame is not None:
        local = by.cr_frame.f_locals.get(_waiters()[by.cr_code]) or ()
        several = local if isinstance(local, (set, frozenset, list, tuple)) else (local,)
    keys: dict[str, None] = {}
    for future in several or ():
        if future.done():
            of_one = _keys(future, None)
            if not of_one:
                return ()
            keys.update(dict.fromkeys(of_one))
    return tuple(keys)


def _install(instrument: Instrument, asyncio: ModuleType) -> None:
    Tasks(instrument, asyncio, lambda _: None)


INSTALL = {"asyncio": _install}

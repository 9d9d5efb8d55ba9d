"""Threads and pools: joining a thread, or asking for the result of a call in a pool, is a wait.

So a wait in a helper thread becomes a wait of the thread that needs the helper. For a pool of
processes, the wait is one for data, as that for a DataLoader: what these do is in no scope.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import Context
from types import ModuleType
from typing import Any

from gpuprof._session.instruments.instrument import Call, Instrument, new_key, short_name

THREAD = " (thread)"
"""The suffix of the names of scopes around a thread, or around a call in a pool."""
POOL_RESULT = "pool.result"
"""The scope that waits for the result of a call in a pool of processes."""
_KEY = "_gpuprof_key"
_IN_PROCESS = "_gpuprof_in_process"
"""The attribute of a future whose call runs in another process."""
_SERVICES = {"ray", "torch", "tqdm", *sys.stdlib_module_names}
"""Packages whose functions get no scope in a thread: they run as long as the job, or only wait."""


def _key_of(waited_for: Any) -> str | None:
    return getattr(waited_for, _KEY, None)


def _calling(function: Any) -> tuple[Call, str] | None:
    """How to mark a function that runs in a thread, and the key; ``None`` to leave it unmarked."""
    while isinstance(function, functools.partial):
        # `asyncio.to_thread` calls the context of its caller
        in_context = function.args and isinstance(getattr(function.func, "__self__", None), Context)
        function = function.args[0] if in_context else function.func
    package = str(getattr(function, "__module__", None)).partition(".")[0]
    if package in _SERVICES or package.startswith("gpuprof"):
        return None
    key = new_key("thread")
    return Call(short_name(function) + THREAD, None, key), key


def _running(thread: Any) -> Call | None:
    calling = _calling(thread._target or type(thread).run)
    if calling is None:
        return None
    call, key = calling
    setattr(thread, _KEY, key)
    return call


def _install_threads(instrument: Instrument, threading: ModuleType) -> None:
    def joining(thread: Any, *_: Any, **__: Any) -> Call:
        return Call("Thread.join", "*", lambda _: None if thread.is_alive() else _key_of(thread))

    # `_bootstrap_inner` calls `run`, which the job's subclasses may override
    instrument.around([threading.Thread], "_bootstrap_inner", _running)
    instrument.around([threading.Thread], "join", joining)


def _install_pools(instrument: Instrument, pools: ModuleType) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def submit(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            calling = None
            if instrument.on and callable(function):
                calling = instrument.guarded(_calling, function)
            if calling is None:
                return original(pool, function, *args, **kwargs)
            call, key = calling

            def before(*_: Any, **__: Any) -> Call | None:
                return call if instrument.on else None

            future = original(pool, instrument.call, before, function, args, kwargs)
            setattr(future, _KEY, key)
            return future

        return submit

    instrument.replace([pools.ThreadPoolExecutor], "submit", make)


def _install_futures(instrument: Instrument, futures: ModuleType) -> None:
    def getting(future: Any, *_: Any, **__: Any) -> Call | None:
        if future.done():  # no wait, for example when an event loop fetches a result
            return None
        return _waiting_for([future], lambda _: _key_of(future))

    def keys_of(ended: Any) -> tuple[str, ...] | None:
        return tuple(filter(None, map(_key_of, ended.done))) or None

    def waiting(fs: Any, *_: Any, **__: Any) -> Call | None:
        if not isinstance(fs, Collection):  # an iterator is left for the function itself
            return None
        return None if all(future.done() for future in fs) else _waiting_for(fs, keys_of)

    def following(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def as_completed(fs: Iterable[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
            waited_for = set(fs)
            call = _waiting_for(waited_for, _key_of) if waited_for else None
            completed = original(waited_for, *args, **kwargs)
            del waited_for  # or the results would live until the last one is there

            def before(*_: Any) -> Call | None:
                return call if instrument.on else None

            while True:
                future = instrument.call(before, next, (completed, None), {})
                if future is None:
                    return
                yield future
                del future  # or its result would live on while the next one is awaited

        return as_completed

    base = futures._base
    instrument.around([base.Future], "result", getting)
    instrument.around([base, futures], "wait", waiting)
    instrument.replace([base, futures], "as_completed", following)


def _waiting_for(futures: Collection[Any], key: Callable[[Any], Any]) -> Call:
    """How to mark a wait for futures."""
    if all(hasattr(future, _IN_PROCESS) for future in futures):
        return Call(POOL_RESULT, "data")
    return Call("Future.result", "*", key)


def _install_executors(instrument: Instrument, executors: ModuleType) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def submit(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = original(pool, function, *args, **kwargs)
            setattr(future, _IN_PROCESS, True)
            return future

        return submit

    instrument.replace([executors.ProcessPoolExecutor], "submit", make)


def _install_processes(instrument: Instrument, pools: ModuleType) -> None:
    def waiting(result: Any) -> Call | None:
        # a result that is there has no pool any more; a pool of threads has the same results
        if result._pool is None or isinstance(result._pool, pools.ThreadPool):
            return None
        return Call(POOL_RESULT, "data")

    def getting(result: Any, *_: Any, **__: Any) -> Call | None:
        return None if result.ready() else waiting(result)

    def following(results: Any, *_: Any, **__: Any) -> Call | None:
        return None if results._items else waiting(results)

    instrument.around([pools.ApplyResult], "get", getting)
    for name in ("next", "__next__"):
        instrument.around([pools.IMapIterator], name, following)


INSTALL = {
    "threading": _install_threads,
    "concurrent.futures": _install_futures,
    "concurrent.futures.thread": _install_pools,
    "concurrent.futures.process": _install_executors,
    "multiprocessing.pool": _install_processes,
}

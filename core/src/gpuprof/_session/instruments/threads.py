"""Threads: joining a thread, or asking for the result of a call in a pool, waits for its end.

So a wait in a helper thread becomes a wait of the thread that needs the helper.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextvars import Context
from types import ModuleType
from typing import Any

from gpuprof._session.instruments.instrument import Call, Instrument, new_key, short_name

THREAD = " (thread)"
"""The suffix of the names of scopes around a thread, or around a call in a pool."""
_KEY = "_gpuprof_key"
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

    def getting(future: Any, *_: Any, **__: Any) -> Call | None:
        if future.done():  # no wait, for example when an event loop fetches a result
            return None
        return Call("Future.result", "*", lambda _: _key_of(future))

    instrument.replace([pools.ThreadPoolExecutor], "submit", make)
    instrument.around([pools._base.Future], "result", getting)


INSTALL = {"threading": _install_threads, "concurrent.futures.thread": _install_pools}

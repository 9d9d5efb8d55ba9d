"""All workers in one thread without Ray, for debuggers and single-process profilers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import gpuprof

log = logging.getLogger("ray_ppo")


class SerialLaunch:
    """Runs the workers in an event loop.

    Coroutines that wait for each other take turns; all other methods run when called.

    Args:
        loop: an event loop that is not running.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, worker: type, group: str, rank: int, *arguments: Any) -> LocalHandle:
        """Make the worker. Here nobody needs to know which one it is."""
        return LocalHandle(worker(*arguments), self._loop)

    def wait_until_started(self, handles: list[LocalHandle]) -> None:
        """They have been since they were made."""

    def wait(self, references: list[asyncio.Future[Any]]) -> list[Any]:
        """Run the event loop until all calls have ended. If one fails, the others are cancelled."""

        async def all_results() -> list[Any]:
            return await asyncio.gather(*references)

        try:
            return self._loop.run_until_complete(all_results())
        except BaseException:
            for reference in references:
                reference.cancel()
            self._loop.run_until_complete(asyncio.gather(*references, return_exceptions=True))
            raise

    def step(self, number: int, frames: int) -> AbstractContextManager[object]:
        """Says which step it is, which matters if `gpuprof run` has started this process."""
        return gpuprof.step(number, frames=frames)


class LocalHandle:
    """A local worker with an actor's interface: `handle.method.remote(...)`."""

    def __init__(self, worker: object, loop: asyncio.AbstractEventLoop) -> None:
        self._worker = worker
        self._loop = loop

    def __getattr__(self, method: str) -> LocalMethod:
        return LocalMethod(getattr(self._worker, method), self._loop)


class LocalMethod:
    """One method of a worker of this process."""

    def __init__(self, method: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> None:
        self._method = method
        self._loop = loop

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        """Call it, or let it begin if it is a coroutine function."""
        result = self._method(*arguments)
        if inspect.iscoroutine(result):
            return self._loop.create_task(result)
        done = self._loop.create_future()
        done.set_result(result)
        return done


@contextmanager
def launch() -> Iterator[SerialLaunch]:
    """For the time of the training. At the end the timing tree of this process is logged."""
    loop = asyncio.new_event_loop()
    timing = gpuprof.timing()
    timing.name = "Runner profile"
    try:
        with timing.add_time("main_loop"):
            yield SerialLaunch(loop)
    finally:
        loop.close()
        log.info("%s", timing)

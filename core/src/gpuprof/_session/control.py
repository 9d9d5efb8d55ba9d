"""The control thread of a session.

Everything that talks to a profiler happens here, one task at a time, never on the job's threads. A
backend with `start_in_thread` is the exception: this thread pauses meanwhile.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from gpuprof._log import log


class ControlThread:
    """A daemon thread that runs tasks in order, and a chore at intervals.

    An exception raised by a task or by the chore does not end the thread.

    An executor of the standard library would not do: it refuses work while the interpreter shuts
    down, which is when the last window must be closed.

    Args:
        chore: called on the thread at most once every `interval` seconds.
        interval: seconds.
    """

    def __init__(self, chore: Callable[[], object], interval: float) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._chore = chore
        self._interval = interval
        self._chore_failed = False
        threading.Thread(target=self._run, name="gpuprof-control", daemon=True).start()

    def submit(self, task: Callable[[], Any]) -> Future[Any]:
        """Queue `task` to run on the thread."""
        future: Future[Any] = Future()
        self._tasks.put((task, future))
        return future

    def end(self) -> None:
        """End the thread after the tasks submitted so far; submit none afterwards."""
        self._tasks.put(None)

    @contextmanager
    def paused(self, deadline: float) -> Iterator[None]:
        """Keep the thread waiting while the caller does the thread's work."""
        arrival, over = threading.Event(), threading.Event()

        def wait() -> None:
            arrival.set()
            over.wait()

        self.submit(wait)
        try:
            if not arrival.wait(deadline):
                raise TimeoutError(f"the control thread was busy for {deadline:g} s")
            yield
        finally:
            over.set()

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while True:
            try:
                submission = self._tasks.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                pass
            else:
                if submission is None:
                    return
                task, future = submission
                try:
                    future.set_result(task())
                except BaseException as error:
                    future.set_exception(error)
            if time.monotonic() >= due:
                self._do_chore()
                due = time.monotonic() + self._interval

    def _do_chore(self) -> None:
        try:
            self._chore()
        except Exception as error:
            # If the thread ended, every later window of the job would run into its deadline.
            if not self._chore_failed:
                self._chore_failed = True
                log().warning(
                    "a periodic task of the session failed and will be retried: %s: %s",
                    type(error).__name__,
                    error,
                )

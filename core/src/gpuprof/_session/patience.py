"""Waits for the profiler as long as it makes progress, and gives the process the time for it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any

from gpuprof._shim.files import status_file
from gpuprof._shim.row import Row
from gpuprof._shim.scratch import Progress

PATIENCE = 5.0
"""Seconds that the job waits for an idle profiler. A busy one may take longer: nsys needs 22 s to
write a report of two million ranges.
"""
_PAUSE = 1.0
_ALARM = 3.0
"""Seconds that Ray gives a process to end."""


def answered(future: Future[Any], deadline: float, scratch: str) -> bool:
    """Wait for a call of the profiler, and return whether the call finished.

    Gives up at the deadline, or once the profiler's processes have been idle for `PATIENCE`.

    Args:
        scratch: the temporary directory of the profiler's processes. If it is empty, or there are
            no such processes, the profiler runs in this process and only the deadline applies.
    """
    began = time.monotonic()
    progress = Progress(scratch)
    while not wait([future], min(_PAUSE, PATIENCE, deadline)).done:
        if time.monotonic() > began + deadline or progress.idle() > PATIENCE:
            return False
    return True


@contextmanager
def unhurried() -> Iterator[None]:
    """Stop the clock of whoever aborts this process if it takes long to end.

    After SIGTERM, Ray's handler (Abseil's) sets an alarm of three seconds, which then kills the
    process with SIGABRT, although Python has long begun to end. The job then has at least as long
    for what it does itself.
    """
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    if callable(signal.getsignal(signal.SIGALRM)) or interval or not left:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(left, _ALARM))


def scratch_of(row: Row) -> str:
    """The temporary directory of a worker's profiler; empty without one."""
    with (
        suppress(OSError, ValueError, KeyError),
        open(status_file(row, row["incarnation"])) as file,
    ):
        return str(json.load(file)["scratch"])
    return ""

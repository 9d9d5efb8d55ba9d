"""Waiting for the profiler while it works, and no longer."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

from gpuprof._shim.files import status_file
from gpuprof._shim.row import Row
from gpuprof._shim.scratch import work_of

PATIENCE = 5.0
"""Seconds that the job waits for a profiler that does nothing. One that works may take long: a
report of two million ranges takes nsys 22 s.
"""
_PAUSE = 1.0


def answered(future: Future[Any], deadline: float, scratch: str) -> bool:
    """Wait for what was asked of the profiler. Returns whether it is done.

    Args:
        deadline: seconds to wait at most.
        scratch: the temporary directory of the profiler's processes. Without one, or without such
            processes, the profiler works in this process, and only the deadline counts.
    """
    began = idle_since = time.monotonic()
    known: dict[str, int] = {}
    while not wait([future], min(_PAUSE, PATIENCE, deadline)).done:
        now = time.monotonic()
        if now > began + deadline:
            return False
        ticks, busy = work_of(scratch) if scratch else ({}, True)
        if busy or not ticks or ticks != known:
            known, idle_since = ticks, now
        elif now > idle_since + PATIENCE:
            return False
    return True


def scratch_of(row: Row) -> str:
    """The temporary directory of a worker's profiler; empty without one."""
    with (
        suppress(OSError, ValueError, KeyError),
        open(status_file(row, row["incarnation"])) as file,
    ):
        return str(json.load(file)["scratch"])
    return ""

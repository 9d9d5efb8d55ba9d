"""Ends a check that hangs, wherever it hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import pytest

LIMIT = 900.0
"""Seconds that a check may take on the busiest machine. The page "Write a backend" has the same."""
_SIGNAL = signal.SIGRTMIN + 7


@contextmanager
def limited(seconds: float = LIMIT) -> Iterator[None]:
    """Fail with the line that waits, if the block takes longer.

    Outside the main thread, which alone gets signals, there is no limit. A process of its own
    watches: timers and threads are among what the checks compare.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(number: int, frame: FrameType | None) -> None:
        place = frame and f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
        pytest.fail(
            f"the check has not ended within {seconds:g} s: it waits in {place}\n"
            "To fix it: give a timeout to every wait of the backend and of its tool",
            pytrace=False,
        )

    usual = signal.signal(_SIGNAL, give_up)
    watch = subprocess.Popen(
        ["sh", "-c", 'sleep "$0" && kill -"$1" "$2"', str(seconds), str(_SIGNAL), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(watch.pid, signal.SIGKILL)
        watch.wait()
        signal.signal(_SIGNAL, usual)

"""A watchdog process that finishes the work of a killed process."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress


def watch(finish: Callable[[], object]) -> Callable[[], object]:
    """Start a process that calls `finish` if this process is killed, as by a launcher's timeout.

    Args:
        finish: called in a fork of this process. The fork is in a new session, so signals to our
            process group do not reach it.

    Returns:
        A function that ends the watch: call it once this process has done its final work.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            # A double fork, so that the watchdog is not our child: this process may exec a program
            # that waits for all of its children.
            if not os.fork():
                os.setsid()
                os.close(writer)
                if not os.read(reader, 1):
                    finish()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(reader)

    def end_watch() -> None:
        with suppress(BrokenPipeError):  # the watchdog was killed
            os.write(writer, b".")

    return end_watch

"""Finish in the place of a process that is killed: launchers kill what does not end in time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress


def watch(finish: Callable[[], object]) -> Callable[[], object]:
    """Have another process call `finish` if this one ends early.

    Args:
        finish: called in a copy of this process, in a session of its own, so that no signal to our
            group reaches it.

    Returns:
        Ends the watch: this process has finished by itself.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            # Forked twice, so that it has no parent: a program that we become may wait for all of
            # its children.
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

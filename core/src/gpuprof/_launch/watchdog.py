"""Finishing in the place of a process that is killed: launchers kill what does not end in time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress


def stand_by(finish: Callable[[], object]) -> Callable[[], object]:
    """Have another process call `finish` if this one ends before it has said that all is well.

    Args:
        finish: called in a copy of this process, in a session of its own, so that no signal to our
            group reaches it.

    Returns:
        What says that all is well.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            # Forked twice, so that it is nobody's child: a program that we become may wait for all
            # of its own.
            if not os.fork():
                os.setsid()
                os.close(writer)
                if not os.read(reader, 1):
                    finish()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(reader)

    def all_is_well() -> None:
        with suppress(BrokenPipeError):  # it is gone, and nobody needs it any more
            os.write(writer, b".")

    return all_is_well

"""Passes the launcher's umask and signal settings on to the worker, past the profiler."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from .files import umask

_PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these at startup, so the launcher's setting is unknown."""


def _ignored() -> tuple[int, ...]:
    return tuple(
        number
        for number in range(1, 32)
        if number not in _PYTHONS_OWN and signal.getsignal(number) == signal.SIG_IGN
    )


UMASK = umask()
IGNORED = _ignored()
"""The signals below 32 that were ignored when this process started, as ``nohup`` does."""


def umask_command() -> str:
    """A shell command that restores the umask."""
    return "" if UMASK is None else f"umask {UMASK:04o}; "


def signals_command() -> list[str]:
    """A command prefix that restores the ignored signals; empty if there were none.

    A shell cannot do this: dash needs SIGCHLD itself.
    """
    if not IGNORED:
        return []
    code = (
        "import os, sys; from signal import *\n"
        f"for number in {IGNORED}: signal(number, SIG_IGN)\n"
        f"for number in {tuple(map(int, _PYTHONS_OWN))}: signal(number, SIG_DFL)\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-S", "-E", "-c", code]


def heed_children() -> None:
    """Let this process wait for its children, even if its launcher ignores SIGCHLD."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def restore_signals() -> None:
    """Restore every signal to its state at process start; Python's own get the default."""
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN if number in IGNORED else signal.SIG_DFL)


def become(command: list[str]) -> NoReturn:
    """Replace this process with a command that starts as this process did.

    Raises:
        OSError: the command cannot be run.
    """
    restore_signals()
    os.execvp(command[0], command)

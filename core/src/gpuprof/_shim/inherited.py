"""What the launcher gave this process, so that the worker gets it, whatever runs in between."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from .files import umask

_PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them from its start, so what the launcher did with them is unknown."""


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
    """The shell's command that restores the umask."""
    return "" if UMASK is None else f"umask {UMASK:04o}; "


def signals_command() -> list[str]:
    """The words in front of a command that restore its signals; none if nothing was ignored.

    A shell could not do it: dash has a use of its own for SIGCHLD.
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
    """Handle each signal as when this process started, and Python's own by default."""
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

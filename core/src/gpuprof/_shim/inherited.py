"""Passes umask, signal settings and process group on to the worker, past the profiler."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from .files import umask

_PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these at startup, so the launcher's setting is unknown."""

TERMINAL_SIGNALS = (signal.SIGTTIN, signal.SIGTTOU)
"""These stop a background process that uses its terminal. A tool in a separate process group
ignores them, so it continues.
"""


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


def restore_command(group: int | None) -> list[str]:
    """A command prefix that restores ignored signals and the process group.

    Empty if there is nothing to restore. A shell cannot do this: dash needs SIGCHLD itself, and
    cannot join a process group.

    Args:
        group: the process group that the worker must join, if the tool has another one. If the
            tool starts the worker in a new session, as nsys does, the worker stays there.
    """
    if not IGNORED and group is None:
        return []
    reset = [*_PYTHONS_OWN, *TERMINAL_SIGNALS] if group is not None else _PYTHONS_OWN
    code = (
        "import os, sys; from signal import *\n"
        f"for number in {IGNORED}: signal(number, SIG_IGN)\n"
        f"for number in {[int(n) for n in reset if n not in IGNORED]}: signal(number, SIG_DFL)\n"
        + (f"try: os.setpgid(0, {group})\nexcept OSError: pass\n" if group is not None else "")
        + "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-I", "-S", "-c", code]


def heed_children() -> None:
    """Make it possible to wait for children, even if the launcher ignores SIGCHLD."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def restore_signals() -> None:
    """Restore every signal's state at process start; those that Python ignores get the default."""
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN if number in IGNORED else signal.SIG_DFL)


def become(command: list[str]) -> NoReturn:
    """Replace this process by a command, with the signal settings that it started with."""
    restore_signals()
    os.execvp(command[0], command)

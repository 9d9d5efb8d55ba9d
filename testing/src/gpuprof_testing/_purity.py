"""Detecting a function's side effects through the interpreter's audit events."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

_ACTS = {
    "os.chdir", "os.exec", "os.fork", "os.forkpty", "os.link", "os.mkdir", "os.posix_spawn",
    "os.putenv", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.system", "os.truncate",
    "os.unsetenv", "socket.connect", "subprocess.Popen", "sys.addaudithook",
}  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_watched: dict[int, list[str]] = {}
_installed = False


def acts_of(
    function: Callable[[], Result], acts: list[str] | None = None
) -> tuple[Result, list[str]]:
    """Call `function` and record its side effects.

    Args:
        acts: a list for the side effects, for whoever wants them though the function raises.

    Returns its result, and the processes it started, files it wrote and variables it changed.
    """
    global _installed
    if not _installed:
        sys.addaudithook(_hear)  # cannot be removed again
        _installed = True
    acts = [] if acts is None else acts
    _watched[threading.get_ident()] = acts
    try:
        return function(), acts
    finally:
        del _watched[threading.get_ident()]


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    acts = _watched.get(threading.get_ident())
    if acts is None:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = flags & _WRITES if mode is None else any(letter in str(mode) for letter in "wxa+")
        # what is open already has a number, such as a pipe to a tool
        if writes and not isinstance(path, int) and "__pycache__" not in str(path):
            acts.append(f"open {path} for writing")
    elif event == "subprocess.Popen":
        words = arguments[1] if isinstance(arguments[1], (list, tuple)) else [arguments[1]]
        acts.append(" ".join(["subprocess.Popen", *map(str, words)]))
    elif event in _ACTS:
        acts.append(f"{event} {arguments[0] if arguments else ''}".strip())

"""The log of a worker's profiler, kept apart from the worker's own output."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .safe import UnsafeFile, create, open_regular

_LONGEST = 200
"""The longest quoted line, in characters."""
_LAST = 4
"""How many lines to quote: nsys takes three to say that its agent is gone."""
_TAIL = 4096
"""How many bytes to read at the end of a log. A progress bar takes some hundreds."""
_PAUSE = 0.2


class ToolLog:
    """The log of one start of a worker; no log on a full disk.

    Args:
        path: of a file that is replaced if it exists; empty for no log.
        name: the worker's.
        verbose: whether to print on stderr, too, what goes to the log.
    """

    def __init__(self, path: str, name: str, verbose: bool) -> None:
        self._path = path
        self._name = name
        self._verbose = verbose
        self.handle: int | None = None
        with suppress(OSError):
            self.handle = create(path) if path else None
        if self.handle is not None:  # several processes write to it
            fcntl.fcntl(self.handle, fcntl.F_SETFL, os.O_WRONLY | os.O_APPEND)

    @property
    def size(self) -> int:
        """Bytes."""
        return 0 if self.handle is None else os.fstat(self.handle).st_size

    def first_words(self, since: int) -> str:
        """The first line after `since` bytes; empty if there is none."""
        return next(_lines(_read(self._path, since)), "")

    @contextmanager
    def shown(self, since: int) -> Iterator[None]:
        """If `verbose`, print new lines after `since` bytes, prefixed with the worker's name.

        The profiler writes to the log and not to us, so it goes on if this process is killed.
        """
        if self.handle is None or not self._verbose:
            yield
            return
        import threading  # slow to import, rarely needed

        end = threading.Event()
        arguments = (self._path, since, self._name, end.wait)
        thread = threading.Thread(target=_follow, args=arguments, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def close(self) -> None:
        """Close the log, and remove it if it is empty."""
        if self.handle is None:
            return
        empty = not self.size
        os.close(self.handle)
        self.handle = None
        if empty:
            with suppress(OSError):
                os.unlink(self._path)


def last_words(path: str) -> str:
    """The last lines of a log; empty if there are none.

    Several, as a program that is killed prints what it has buffered after what it says of that.
    """
    return " / ".join(list(_lines(_read(path, -_TAIL)))[-_LAST:])


def _read(path: str, start: int) -> bytes:
    """At most `_TAIL` bytes from a position, which counts from the end if it is negative."""
    with suppress(OSError, UnsafeFile), open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size + start) if start < 0 else start)
        return file.read(_TAIL)
    return b""


def _lines(content: bytes) -> Iterator[str]:
    r"""The lines that are not blank; of a progress bar its last state.

    >>> list(_lines(b"Generating\n\r[==  50%  ] a\r[===100%] a\n\n\x1b[2J"))
    ['Generating', '[===100%] a', '?[2J']
    """
    for line in content.decode(errors="replace").split("\n"):
        states = [" ".join(state.split()) for state in line.split("\r")]
        text = next((state for state in reversed(states) if state), "")
        if text:  # a stranger's log may hold commands for the terminal
            yield "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST])


def _follow(path: str, start: int, name: str, wait: Callable[[float], bool]) -> None:
    with suppress(OSError, UnsafeFile), open(open_regular(path), "rb") as file:
        file.seek(start)
        rest, over = b"", False
        while True:
            content = file.read()
            whole, newline, rest = (rest + content).rpartition(b"\n")
            _print(name, whole + newline)
            if over and not content:
                _print(name, rest)
                return
            over = over or wait(_PAUSE)


def _print(name: str, content: bytes) -> None:
    for line in _lines(content):
        sys.stderr.write(f"{name}: {line}\n")
    sys.stderr.flush()

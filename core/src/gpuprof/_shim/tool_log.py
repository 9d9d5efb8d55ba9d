"""The log of a worker's profiler, kept apart from the worker's own output."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress

from .safe import UnsafeFile, create, open_regular

_LONGEST = 200
"""The longest quoted line, in characters."""
_LAST = 4
"""How many lines to quote: nsys's report that its agent is gone has three."""
_TAIL = 4096
"""How many bytes to read at the end of a log. A progress bar takes some hundreds."""


class ToolLog:
    """The log of one start of a worker; no log on a full disk.

    Args:
        path: the log file, replaced if it exists; empty for no log.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.handle: int | None = None
        with suppress(OSError):
            self.handle = create(path) if path else None
        if self.handle is not None:  # several processes write to it
            fcntl.fcntl(self.handle, fcntl.F_SETFL, os.O_WRONLY | os.O_APPEND)

    @property
    def size(self) -> int:
        """The log's size in bytes; 0 without a log."""
        return 0 if self.handle is None else os.fstat(self.handle).st_size

    def first_words(self, since: int) -> str:
        """The first line after `since` bytes; empty if there is none."""
        return next(_lines(_read(self._path, since)), "")

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

    Several lines, because a killed program first reports that it was killed and then prints its
    buffered output.
    """
    return " / ".join(list(_lines(_read(path, -_TAIL)))[-_LAST:])


def _read(path: str, start: int) -> bytes:
    """Read at most `_TAIL` bytes from `start`; a negative `start` counts from the end."""
    with suppress(OSError, UnsafeFile), open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size + start) if start < 0 else start)
        return file.read(_TAIL)
    return b""


def _lines(content: bytes) -> Iterator[str]:
    r"""The lines that are not blank; for a progress bar, only its last state.

    >>> list(_lines(b"Generating\n\r[==  50%  ] a\r[===100%] a\n\n\x1b[2J"))
    ['Generating', '[===100%] a', '?[2J']
    """
    for line in content.decode(errors="replace").split("\n"):
        states = [" ".join(state.split()) for state in line.split("\r")]
        text = next((state for state in reversed(states) if state), "")
        if text:  # an untrusted log may hold escape sequences
            yield "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST])

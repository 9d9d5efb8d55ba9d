"""NVTX ranges in gpuprof's own domain: in C where `compiled.c` was built, else in Python.

``GPUPROF_NSIGHT_PURE=1`` forces Python.
"""

from __future__ import annotations

import functools
import os
import threading
import zlib
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gpuprof_nsight._names import DOMAIN
from gpuprof_nsight._nvtx.package import functions

_COLORS = (
    0xFF76B900,
    0xFF1F77B4,
    0xFFFF7F0E,
    0xFFD62728,
    0xFF9467BD,
    0xFF8C564B,
    0xFFE377C2,
    0xFF17BECF,
)
"""ARGB."""
_MOST_NAMES = 4096
VARIABLE = "GPUPROF_NSIGHT_PURE"
"""``1`` forces Python."""


def _load() -> Any:
    if os.environ.get(VARIABLE) == "1":
        return None
    try:
        import gpuprof_nsight._nvtx.compiled as found  # type: ignore[import-not-found]
    except ImportError:
        return None
    return found


_compiled: Any = _load()
compiled: bool = _compiled is not None
"""Whether ranges are opened in C."""


class Opener(Protocol):
    """Opens ranges of one worker group and step."""

    def open(self, name: str, crosses_tasks: bool, /) -> AbstractContextManager[object]:
        """Make a range: push and pop, or start and end where it may cross tasks."""


def make(group: str, step: int | None) -> Opener:
    """Make what opens ranges.

    Args:
        group: the worker group: the ranges' category, which also sets their colour.
        step: the ranges' payload; ``None`` for none.
    """
    if _compiled is None:
        return Ranges(group, step)
    opener: Opener = _compiled.Ranges(_category(group), color(group), step)
    return opener


@functools.cache
def _category(group: str) -> int:
    """The number of a group's category, whose name NVTX has from now on."""
    number = zlib.crc32(group.encode())
    _compiled.name_category(DOMAIN, number, group)
    return number


class Ranges:
    """What `make` returns where ranges run in Python."""

    def __init__(self, group: str, step: int | None) -> None:
        self._group = group
        self._step = step
        self._attributes: dict[str, Any] = {}
        nvtx = functions(DOMAIN)  # imports nvtx now, and not within the measured step
        self._describe = nvtx.describe
        _PushedRange.push, _PushedRange.pop = staticmethod(nvtx.push), staticmethod(nvtx.pop)
        _StartedRange.start, _StartedRange.end = staticmethod(nvtx.start), staticmethod(nvtx.end)

    def open(self, name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        """Make a range: push and pop, or start and end where it may cross tasks."""
        try:
            attributes = self._attributes[name]
        except KeyError:
            attributes = self._make_attributes(name)
        context = _StartedRange() if crosses_tasks else _PushedRange()
        context.attributes = attributes
        return context

    def _make_attributes(self, name: str) -> Any:
        if len(self._attributes) >= _MOST_NAMES:
            self._attributes.clear()  # names made from data would fill the memory
        attributes = self._describe(name, color(self._group), self._group, self._step)
        self._attributes[name] = attributes
        return attributes


def color(group: str) -> int:
    """The fixed colour of a worker group's ranges."""
    return _COLORS[zlib.crc32(group.encode()) % len(_COLORS)]


class _StartedRange:
    __slots__ = ("attributes", "number")

    start: Any
    end: Any
    attributes: Any
    number: int

    def __enter__(self) -> None:
        self.number = self.start(self.attributes)

    def __exit__(self, *error: object) -> None:
        self.end(self.number)


class _PushedRange:
    """A push/pop range.

    NVTX pops the top of the calling thread's stack, so a range that ends out of order waits until
    it is on top.
    """

    __slots__ = ("attributes",)

    push: Any
    pop: Any
    attributes: Any

    def __enter__(self) -> None:
        self.push(self.attributes)
        _thread.stack.append(self)

    def __exit__(self, *error: object) -> None:
        stack = _thread.stack
        if not stack or stack[-1] is not self:
            # Also if another thread pushed it: that thread pops it with its next range.
            _ended.add(self)
            return
        del stack[-1]
        self.pop()
        if _ended:
            while stack and stack[-1] in _ended:
                _ended.remove(stack.pop())
                self.pop()


class _Thread(threading.local):
    """This thread's ranges that are pushed, the top at the end."""

    def __init__(self) -> None:
        self.stack: list[_PushedRange] = []


_thread = _Thread()
_ended: set[_PushedRange] = set()
"""Ranges that ended before they were on top."""

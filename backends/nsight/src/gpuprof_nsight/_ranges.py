"""NVTX ranges in gpuprof's own domain."""

from __future__ import annotations

import functools
import os
import threading
import zlib
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from gpuprof_nsight._gates import DOMAIN

_COLORS = (0xFF76B900, 0xFF1F77B4, 0xFFFF7F0E, 0xFFD62728, 0xFF9467BD, 0xFF8C564B, 0xFFE377C2, 0xFF17BECF)
"""ARGB."""


@functools.cache
def domain() -> Any:
    """Our NVTX domain.

    From 0.2.12 on, nvtx asks whether a domain is enabled and hands out a dummy when the answer is no. nsys up to 2023.4 does not
    know the question, so the answer is always no and nothing would be recorded. Under a tool we therefore make the domain
    ourselves, without asking.
    """
    import nvtx

    found = nvtx.get_domain(DOMAIN)
    if isinstance(found, nvtx.Domain) or "NVTX_INJECTION64_PATH" not in os.environ:
        return found
    from nvtx._lib.lib import DomainHandle

    made = object.__new__(nvtx.Domain)
    made.handle = DomainHandle(DOMAIN)
    made.__init__(DOMAIN)
    return made


def open_range(group: str, name: str, step: int | None, crosses_tasks: bool) -> AbstractContextManager[object]:
    """A range with the step as its payload: pushed and popped, or started and ended where it may cross tasks."""
    return (_StartedRange if crosses_tasks else _PushedRange)(_attributes(group, name, step))


@functools.lru_cache(maxsize=4096)
def _attributes(group: str, name: str, step: int | None) -> Any:
    return domain().get_event_attributes(name, color=color(group), category=group, payload=step)


def color(group: str) -> int:
    """The colour of a worker group's ranges, always the same: one of those that look different."""
    return _COLORS[zlib.crc32(group.encode()) % len(_COLORS)]


class _StartedRange(AbstractContextManager[None]):
    def __init__(self, attributes: Any) -> None:
        self._attributes = attributes

    def __enter__(self) -> None:
        self._number = domain().start_range(self._attributes)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        domain().end_range(self._number)


class _Stack(threading.local):
    """The pushed ranges of one thread, the innermost last."""

    def __init__(self) -> None:
        self.ranges: list[_PushedRange] = []


_stack = _Stack()


class _PushedRange(AbstractContextManager[None]):
    """NVTX pops whatever is on top of the calling thread's stack, so a range that ends out of order waits until it is on top."""

    def __init__(self, attributes: Any) -> None:
        self._attributes = attributes
        self._ended = False

    def __enter__(self) -> None:
        self._ranges = _stack.ranges
        domain().push_range(self._attributes)
        self._ranges.append(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended = True
        if self._ranges is not _stack.ranges:
            return  # another thread's stack: that thread pops it with its next range
        while self._ranges and self._ranges[-1]._ended:
            self._ranges.pop()
            domain().pop_range()

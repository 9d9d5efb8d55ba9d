"""Ranges in the trace.

An unbalanced pop aborts the process, so each thread pops only the ranges that it pushed.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

from gpuprof_rocprof_sys._markers import Markers, markers


def open_range(name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
    """Make a range: push and pop, or start and stop where it may cross tasks."""
    provider = markers()
    if provider is None:
        return nullcontext()
    return (_StartedRange if crosses_tasks else _PushedRange)(provider, name)


class _StartedRange(AbstractContextManager[None]):
    def __init__(self, provider: Markers, name: str) -> None:
        self._provider = provider
        self._name = name

    def __enter__(self) -> None:
        self._identifier = self._provider.start(self._name)

    def __exit__(self, *error: object) -> None:
        self._provider.stop(self._identifier)


class _Stack(threading.local):
    """The pushed ranges of one thread, the innermost last."""

    def __init__(self) -> None:
        self.ranges: list[_PushedRange] = []


_stack = _Stack()


class _PushedRange(AbstractContextManager[None]):
    """A push/pop range. One that ends out of order waits until it is on top of the stack."""

    def __init__(self, provider: Markers, name: str) -> None:
        self._provider = provider
        self._name = name
        self._ended = False

    def __enter__(self) -> None:
        self._ranges = _stack.ranges
        self._provider.push(self._name)
        self._ranges.append(self)

    def __exit__(self, *error: object) -> None:
        self._ended = True
        if self._ranges is not _stack.ranges:
            return  # another thread's stack: that thread pops it with its next range
        while self._ranges and self._ranges[-1]._ended:
            last = self._ranges.pop()
            self._provider.pop(last._name)

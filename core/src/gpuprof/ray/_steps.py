"""The global steps of a driver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from gpuprof._log import log


class Steps:
    """The driver's steps: which have begun, and which one runs.

    Args:
        begin: called with the number of a step that begins.
        end: called with the number of a step that ends, and its seconds, or `None`.

    Attributes:
        lowest: infinite before the first.
        highest: negative infinite before the first.
        count: how many have begun.
        running: the innermost step that has not ended; stale if a step never ends, until the next
            one begins.
    """

    __slots__ = ("_warned", "begin", "count", "end", "highest", "lowest", "running")

    def __init__(
        self, begin: Callable[[int], None], end: Callable[[int, float | None], None]
    ) -> None:
        self.begin = begin
        self.end = end
        self.lowest = math.inf
        self.highest = -math.inf
        self.count = 0
        self.running: int | None = None
        self._warned: set[str] = set()

    def warn_type(self, number: object) -> None:
        """Warn once for each type that is not a number."""
        kind = type(number).__name__
        if kind not in self._warned:
            self._warned.add(kind)
            log().warning(
                "profiler.step expects an integer; a step of type %s is in no window", kind
            )


class Step(AbstractContextManager[None]):
    """A step as a context manager.

    A step inside itself, marked by both a framework and the user's code, ends with the outer one. A
    step that contains others, or that an exception leaves, has no duration to compare.
    """

    __slots__ = ("_count", "_number", "_outer", "_started", "_steps")

    def __init__(self, steps: Steps, number: int) -> None:
        self._steps = steps
        self._number = number

    def __enter__(self) -> None:
        steps, number = self._steps, self._number
        self._outer = steps.running
        try:
            if number > steps.highest:
                steps.highest = number
            if number < steps.lowest:
                steps.lowest = number
        except TypeError:
            self._outer = number  # as if it were inside itself
            steps.warn_type(number)
        else:
            steps.running = number
            steps.count = self._count = steps.count + 1
            if self._outer != number:
                steps.begin(number)
        self._started = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = time.perf_counter() - self._started
        steps = self._steps
        if self._outer != self._number:
            steps.running = self._outer
            steps.end(
                self._number, seconds if kind is None and steps.count == self._count else None
            )

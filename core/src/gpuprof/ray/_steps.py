"""The global steps that a driver marks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from gpuprof._log import log


class Steps:
    """Keeps track of the driver's steps.

    Args:
        begin: called with the number of a step that begins.
        end: called with the number of a step that ends, and with its duration in seconds; ``None``
            if the duration cannot be compared.

    Attributes:
        lowest: the lowest number of a step that has begun; infinite before the first step.
        highest: the highest number of a step that has begun; minus infinity before the first step.
        running: the innermost step that has not ended. If a step never ends, it stays here until
            the next step begins.
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
        """Warn that a step's number is not an integer, once for each type."""
        kind = type(number).__name__
        if kind not in self._warned:
            self._warned.add(kind)
            log().warning(
                "profiler.step expects an integer; a step of type %s is in no window", kind
            )


class Step(AbstractContextManager[None]):
    """A step as a context manager.

    If both a framework and the user's code mark the same step, the step ends with the outer mark. A
    step that contains other steps, or that ends with an exception, has no comparable duration.
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

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        seconds = time.perf_counter() - self._started
        steps = self._steps
        if self._outer != self._number:
            steps.running = self._outer
            steps.end(
                self._number, seconds if kind is None and steps.count == self._count else None
            )

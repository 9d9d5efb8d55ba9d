"""The global steps of a driver: one of them as a context manager, and which there were."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from gpuprof._log import log


class Steps:
    """Which steps there were, and which one runs.

    Args:
        begin: called with the number of a step that begins.
        end: called with the number of one that ends, and with the seconds that it took, or `None`.

    Attributes:
        lowest: infinite before the first.
        highest: negative infinite before the first.
        count: how many have begun.
        running: the innermost one that has not ended; stale where one is never ended, until another
            begins.
    """

    __slots__ = ("_odd", "begin", "count", "end", "highest", "lowest", "running")

    def __init__(
        self, begin: Callable[[int], None], end: Callable[[int, float | None], None]
    ) -> None:
        self.begin = begin
        self.end = end
        self.lowest = math.inf
        self.highest = -math.inf
        self.count = 0
        self.running: int | None = None
        self._odd: set[str] = set()

    def say_odd(self, number: object) -> None:
        """Say once that something of its type is no step."""
        kind = type(number).__name__
        if kind not in self._odd:
            self._odd.add(kind)
            log().warning(
                "profiler.step expects an integer; a step of type %s is in no window", kind
            )


class Step(AbstractContextManager[None]):
    """One of them.

    A step inside itself, as where a framework and the user's code both say it, ends with the outer
    one. The duration of one that has others in it, or that was left by an exception, is not told:
    it is not to be compared.
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
            steps.say_odd(number)
        else:
            steps.running = number
            steps.count = self._count = steps.count + 1
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

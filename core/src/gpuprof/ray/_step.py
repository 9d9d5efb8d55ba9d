"""The global steps of a driver: one of them as a context manager, and which there were."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class StepRange:
    """The lowest and the highest step so far; infinite before the first."""

    def __init__(self) -> None:
        self.lowest = math.inf
        self.highest = -math.inf

    def take(self, number: int) -> None:
        """A step begins."""
        if number > self.highest:
            self.highest = number
        if number < self.lowest:
            self.lowest = number


class Step(AbstractContextManager[None]):
    """Tells when it begins and ends.

    Args:
        begin: called with the number.
        end: called with the number, and with the seconds that the step took.
    """

    def __init__(self, begin: Callable[[int], None], end: Callable[[int, float], None], number: int) -> None:
        self._begin = begin
        self._end = end
        self._number = number

    def __enter__(self) -> None:
        self._begin(self._number)
        self._started = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(self._number, time.perf_counter() - self._started)

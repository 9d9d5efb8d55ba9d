"""What the profiler costs: how much longer steps take inside a capture window."""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType

import attrs

from gpuprof._session.file import StepSums

_ENOUGH_STEPS = 3
_LONG_ENOUGH = 0.01
"""Seconds. With shorter steps, or fewer, the machine's noise is as large as the overhead."""


@attrs.define
class StepTimes:
    """Durations of steps, in seconds, inside windows and outside.

    A step is inside if a worker captured it. Opening and closing a window are not part of the step.
    Steps left by an exception do not count, nor does the first step, which warms caches and
    compiles kernels.
    """

    inside: float = 0.0
    outside: float = 0.0
    count_inside: int = 0
    count_outside: int = 0
    _first: bool = True

    def add(self, seconds: float, inside: bool) -> None:
        """Count a step."""
        if self._first:
            self._first = False
        elif inside:
            self.inside += seconds
            self.count_inside += 1
        else:
            self.outside += seconds
            self.count_outside += 1

    def __bool__(self) -> bool:
        """Whether any step has ended, even if only the first."""
        return not self._first

    def to_dict(self) -> StepSums:
        """The sums and counts, in types that JSON has."""
        return {
            "inside": self.inside,
            "outside": self.outside,
            "count_inside": self.count_inside,
            "count_outside": self.count_outside,
        }

    def __str__(self) -> str:
        """One line; empty if there is nothing to compare.

        It has the difference if each side has three steps of at least 10 ms.

        >>> times = StepTimes()
        >>> for step, seconds in enumerate([9.0, 1.0, 1.25, 1.0, 1.25, 1.0]):
        ...     times.add(seconds, inside=step % 2 == 0)
        >>> print(times)
        a step took 1.250 s inside windows (2 of them) and 1.000 s outside (3)
        >>> times.add(1.25, inside=True)
        >>> print(times)
        a step took 1.250 s inside windows (3 of them) and 1.000 s outside (3): +25.0 %
        """
        if not self.count_inside or not self.count_outside:
            return ""
        inside, outside = self.inside / self.count_inside, self.outside / self.count_outside
        enough = (
            min(self.count_inside, self.count_outside) >= _ENOUGH_STEPS
            and min(inside, outside) >= _LONG_ENOUGH
        )
        change = f": {100 * (inside / outside - 1):+.1f} %" if enough else ""
        counts = f"({self.count_inside} of them)", f"({self.count_outside})"
        return (
            f"a step took {_text(inside)} inside windows {counts[0]} and {_text(outside)} "
            f"outside {counts[1]}{change}"
        )


def _text(seconds: float) -> str:
    """A duration, for people.

    >>> _text(1.25), _text(0.00045)
    ('1.250 s', '450 µs')
    """
    return f"{seconds:.3f} s" if seconds >= _LONG_ENOUGH else f"{1e6 * seconds:.0f} µs"


class StepOutside(AbstractContextManager[None]):
    """Times a step outside windows.

    A worker's steps do not overlap, so they share one instance.
    """

    __slots__ = ("_add", "_started")

    def __init__(self, times: StepTimes) -> None:
        self._add = times.add
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._add(perf_counter() - self._started, False)

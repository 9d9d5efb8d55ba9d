"""The profiler's overhead: how much longer captured steps take than other steps."""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import perf_counter
from typing import Literal

import attrs

from gpuprof._session.file import StepSums

_ENOUGH_STEPS = 3
_LONG_ENOUGH = 0.01
"""Seconds. With shorter steps, or fewer, the machine's noise is as large as the overhead."""

StepKind = Literal["captured", "left out", "other"]


@attrs.define
class StepTimes:
    """Durations of steps, in seconds, inside windows and outside.

    A step is inside if a worker captured it; the time to open and close its window counts
    separately. Some steps count neither as inside nor as outside: steps without a window that
    another worker's window delays, steps that end with an exception, and the first step, which
    warms caches and compiles kernels.

    Attributes:
        edges: the time to open and close the windows of the steps inside.
        ended: whether any step has ended, even if only the first.
    """

    inside: float = 0.0
    outside: float = 0.0
    count_inside: int = 0
    count_outside: int = 0
    edges: float = 0.0
    ended: bool = False
    _first: bool = True

    def add(self, seconds: float, kind: StepKind, edges: float = 0.0) -> None:
        """Count a step.

        Args:
            seconds: the step's duration, without `edges`.
            kind: ``captured`` counts as inside, ``other`` as outside, ``left out`` as neither.
            edges: the seconds that opening and closing the step's window took.
        """
        self.ended = True
        if self._first:
            self._first = False
        elif kind == "captured":
            self.inside += seconds
            self.edges += edges
            self.count_inside += 1
        elif kind == "other":
            self.outside += seconds
            self.count_outside += 1

    def to_dict(self) -> StepSums:
        """The sums and counts, in types that JSON has."""
        return {
            "inside": self.inside,
            "outside": self.outside,
            "count_inside": self.count_inside,
            "count_outside": self.count_outside,
            "edges": self.edges,
        }

    def __str__(self) -> str:
        """One line; empty with fewer than three steps on either side.

        The percentage needs steps of at least 10 ms. It is left out if captured steps were shorter
        than the others, for example because other workers waited while this one's window opened.

        >>> times = StepTimes()
        >>> for step, seconds in enumerate([9.0, 1.0, 1.25, 1.0, 1.25, 1.0]):
        ...     times.add(seconds, "other" if step % 2 else "captured", edges=2.0)
        >>> str(times)
        ''
        >>> times.add(1.25, "captured", edges=2.0)
        >>> print(times)
        a captured step took 3.25 s: 1.25 s itself (+25 %), 2.00 s to open and close the window; \
others 1.00 s
        """
        if min(self.count_inside, self.count_outside) < _ENOUGH_STEPS:
            return ""
        inside, outside = self.inside / self.count_inside, self.outside / self.count_outside
        edges = self.edges / self.count_inside
        longer = outside >= _LONG_ENOUGH and inside >= outside
        change = f" (+{100 * (inside / outside - 1):.0f} %)" if longer else ""
        return (
            f"a captured step took {_text(inside + edges)}: {_text(inside)} itself{change}, "
            f"{_text(edges)} to open and close the window; others {_text(outside)}"
        )


def _text(seconds: float) -> str:
    """A duration, for people.

    >>> _text(1.25), _text(0.0123), _text(0.00045)
    ('1.25 s', '12 ms', '450 µs')
    """
    if seconds < _LONG_ENOUGH:
        return f"{1e6 * seconds:.0f} µs"
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.0f} ms"


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

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._add(perf_counter() - self._started, "other")

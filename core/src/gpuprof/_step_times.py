"""How much longer steps take inside a capture window: what the profiler costs, measured and not guessed."""

from __future__ import annotations

import attrs


@attrs.define
class StepTimes:
    """Durations of steps, in seconds, apart for those inside windows and outside. Opening and closing are not part of a step.

    The first step is left out: it warms caches and compiles kernels.
    """

    inside: float = 0.0
    outside: float = 0.0
    count_inside: int = 0
    count_outside: int = 0
    _first: bool = True

    def add(self, seconds: float, inside: bool) -> None:
        """Take a step."""
        if self._first:
            self._first = False
        elif inside:
            self.inside += seconds
            self.count_inside += 1
        else:
            self.outside += seconds
            self.count_outside += 1

    def __str__(self) -> str:
        """One line, empty where there is nothing to compare.

        >>> times = StepTimes()
        >>> for step, seconds in enumerate([9.0, 1.0, 1.25, 1.0]):
        ...     times.add(seconds, inside=step == 2)
        >>> print(times)
        a step took 1.250 s inside windows (1 of them) and 1.000 s outside (2): +25.0 %
        """
        if not self.count_inside or not self.count_outside or not self.outside:
            return ""
        inside, outside = self.inside / self.count_inside, self.outside / self.count_outside
        change = f"{100 * (inside / outside - 1):+.1f} %"
        counts = f"({self.count_inside} of them)", f"({self.count_outside})"
        return f"a step took {inside:.3f} s inside windows {counts[0]} and {outside:.3f} s outside {counts[1]}: {change}"

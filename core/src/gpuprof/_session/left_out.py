"""Keeps the steps that profiling slows in a separate timing tree.

While one worker opens or closes a window, all others wait for it. So every worker leaves these
steps out of its main tree, even if it is not profiled itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuprof_timing import Timing
from gpuprof_timing.recording import DeviceReading, Parts

from gpuprof._log import log
from gpuprof._session.file import TotalsEntry, TreeEntry
from gpuprof._session.windows import StepWindows
from gpuprof.backend.types import Window


class LeftOut:
    """Splits a process's timing tree into ordinary steps and steps slowed by profiling.

    Steps slowed by profiling are those in which any worker captures, and the step after each: a
    window that closes at the end of one step delays the other workers in the next step. If a step
    number repeats, only its first occurrence is captured and left out.

    Args:
        timing: the tree. It is not changed.
        since: a snapshot of the tree at the start of the run; ``None`` for an empty tree.

    Attributes:
        captured: the steps in which any worker captures.
        active: whether the current step is left out.
        driven: whether the driver decides which steps are left out, instead of `begin_step`.

    >>> left_out = LeftOut(Timing())
    >>> left_out.expect([(2, 3)])
    >>> for step in range(6):
    ...     _ = left_out.begin_step(step)
    ...     print(step, left_out.active)
    0 False
    1 False
    2 True
    3 True
    4 False
    5 False
    """

    def __init__(self, timing: Timing, since: Timing | None = None) -> None:
        self.captured = StepWindows()
        self.active = False
        self.steps = 0
        self.driven = False
        self._timing = timing
        self._parts = Parts(timing, since)
        self._whole = since is None
        self._step: int | None = None
        self._window: Window | None = None
        self._follows = False
        self._over: set[int] = set()

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add captured steps, as half-open ranges that do not overlap each other."""
        earlier, gaps = self.captured.ranges, []
        for start, stop in ranges:
            for known_start, known_stop in earlier:
                if start < known_stop:
                    gaps.append((start, min(known_start, stop)))
                    start = known_stop
            gaps.append((start, stop))
        self.captured.add(Window(0, *gap) for gap in gaps if gap[0] < gap[1])

    def begin_step(self, number: int) -> bool:
        """Begin a step that this process counts, and return whether it is a new step.

        It is not new if it is nested in a step of the same number, or if the driver decides.
        """
        if number == self._step or self.driven:  # nested: two callers mark the same step
            return False
        self._step = number
        before, window = self._window, self.captured.at(number)
        if before is not None and window is not before:
            self._over.add(before.number)
        if window is not None and window.number in self._over:
            window = None
        self._window = window
        self._follows = before is not None
        self.mark(window is not None or self._follows)
        return True

    def withdraw(self) -> None:
        """Keep the current step: all its windows were refused, so no window slows it.

        The step is still left out if it follows a captured step.
        """
        self._window = None
        if self.active and not self._follows:
            self.steps -= 1
            self._cut(False)

    def mark(self, left_out: bool) -> None:
        """Begin a step, and switch trees if needed."""
        self.steps += left_out
        if left_out != self.active:
            self._cut(left_out)

    def _cut(self, left_out: bool) -> None:
        self.active = left_out
        try:
            self._parts.cut(left_out)
        except Exception as error:  # the job's step waits here: our faults must not end it
            log().warning(
                "cannot separate profiled steps in the timing tree: %s: %s",
                type(error).__name__,
                error,
            )

    def entry(
        self,
        device: DeviceReading = "known",
        whole_life: bool = False,
        totals: TotalsEntry | None = None,
    ) -> TreeEntry:
        """The tree of the ordinary steps and the tree of the steps left out, in JSON types.

        Args:
            device: which GPU times to read first; see `Timing.to_dict`.
        """
        if not self.steps and self._whole:  # as in most processes
            timing, while_profiling = self._timing.to_dict(device), None
        else:
            ordinary, left_out = self._parts.trees(device)
            timing, while_profiling = ordinary.to_dict(), left_out.to_dict() if left_out else None
        entry: TreeEntry = {
            "timing": timing,
            "while_profiling": while_profiling,
            "steps_left_out": self.steps,
            "whole_life": whole_life,
        }
        if totals is not None:
            entry["totals"] = totals
        return entry

"""Steps that profiling slows, on this worker or on another one: a tree of their own.

All workers of a job wait for one that opens or closes a window, so every worker leaves these steps
out, whether it is profiled or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuprof_timing import Timing
from gpuprof_timing._parts import Parts

from gpuprof._log import log
from gpuprof._session.file import TreeEntry
from gpuprof._session.windows import StepWindows
from gpuprof.backend.types import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuprof_timing._reading import DeviceReading


class LeftOut:
    """Cuts the tree of a process where steps that are left out begin and end.

    These are the steps in which any worker captures, and each step after one: a window that closes
    at the end of a step delays the others in the next one. A step number that comes again is
    captured, and so left out, the first time only.

    Args:
        timing: the tree, which stays whole.
        since: a snapshot of it, where the run begins; ``None`` for its beginning.

    Attributes:
        captured: the steps in which any worker captures.
        active: whether the step that runs is left out.
        steps: how many were.
        driven: whether the driver tells which steps are left out; the worker's own do not count.

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
        self._over: set[int] = set()

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add steps that are captured, as pairs of the first one and the one after the last."""
        if not self.captured.all:
            self.captured.add(Window(0, start, stop) for start, stop in ranges)
            return
        for start, stop in ranges:
            gaps = []
            for known in self.captured.all:
                if known.start is not None and known.stop is not None and start < known.stop:
                    gaps.append((start, min(known.start, stop)))
                    start = known.stop
            gaps.append((start, stop))
            self.captured.add(Window(0, *gap) for gap in gaps if gap[0] < gap[1])

    def begin_step(self, number: int) -> bool:
        """Begin a step of this process's own. Returns whether it is a new one."""
        if number == self._step or self.driven:  # inside itself: two callers mark it
            return False
        self._step = number
        before, window = self._window, self.captured.at(number)
        if before is not None and window is not before:
            self._over.add(before.number)
        if window is not None and window.number in self._over:
            window = None
        self._window = window
        self.mark(window is not None or before is not None)
        return True

    def mark(self, left_out: bool) -> None:
        """Begin a step that is left out, or one that is not."""
        self.steps += left_out
        if left_out != self.active:
            self.active = left_out
            try:
                self._parts.cut(left_out)
            except Exception as error:  # the job's step waits here: our faults must not end it
                log().warning("the timing tree is not cut: %s: %s", type(error).__name__, error)

    def trees(self, device: DeviceReading = "known") -> tuple[Timing, Timing | None]:
        """The tree without the steps that are left out, and the tree of those, if there were any.

        Args:
            device: which times on the GPU are read first, as `Timing.to_dict` has it.
        """
        return self._parts.trees(device)

    def entry(self, device: DeviceReading = "known", whole_life: bool = False) -> TreeEntry:
        """Both trees, in types that JSON has."""
        if not self.steps and self._whole:  # as in most processes
            timing, apart = self._timing.to_dict(device), None
        else:
            clean, left_out = self.trees(device)
            timing, apart = clean.to_dict(), left_out.to_dict() if left_out else None
        return {
            "timing": timing,
            "while_profiling": apart,
            "steps_left_out": self.steps,
            "whole_life": whole_life,
        }

"""A worker's windows: those that are planned, and the one that is open."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import attrs

from gpuprof.backend.types import Window, Windows


class StepWindows:
    """Planned windows, which do not overlap.

    Found by step, quickly, since every step looks; and by number. One thread may add windows while
    another one looks.

    >>> windows = StepWindows([Window(1, 3, 4)])
    >>> added = windows.add([Window(0, 7, 9)])
    >>> [getattr(windows.at(step), "number", None) for step in (3, 5, 8)]
    [1, None, 2]
    """

    def __init__(self, windows: Iterable[Window] = ()) -> None:
        self._by_number: dict[int, Window] = {}
        self._table: tuple[list[int], list[Window]] = ([], [])
        self.add(windows)

    def add(self, windows: Iterable[Window]) -> Windows:
        """Add windows; one with the number 0 gets the next number.

        Skips windows that overlap earlier ones. Returns what was added.
        """
        starts, table = list(self._table[0]), list(self._table[1])
        added = []
        for window in windows:
            start, stop = window.start, window.stop
            if start is not None and stop is not None:
                position = bisect_right(starts, start)
                if (position and start in table[position - 1]) or (
                    position < len(starts) and starts[position] < stop
                ):
                    continue
                window = attrs.evolve(window, number=window.number or len(self._by_number) + 1)
                starts.insert(position, start)
                table.insert(position, window)
            self._by_number[window.number] = window
            added.append(window)
        self._table = (starts, table)
        return tuple(added)

    @property
    def all(self) -> Windows:
        """The windows that have steps, by their first step."""
        return tuple(self._table[1])

    def at(self, step: int) -> Window | None:
        """The window that contains `step`."""
        starts, windows = self._table
        position = bisect_right(starts, step) - 1
        return windows[position] if position >= 0 and step in windows[position] else None

    def numbered(self, number: int) -> Window | None:
        """The window with a number, from 1."""
        return self._by_number.get(number)


class Progress:
    """Which step a worker is at, and which of its windows are planned and open.

    Attributes:
        planned: the windows.
        step: the last step that `gpuprof.step` has begun.
        running: the innermost such step that is in a window and has not ended.
        captured: the window that the profiler records now: a planned one, or a scope.
        armed: the planned window that is open, if each scope in it is a window of its own.
        opened_by_step: open windows, by number, that `gpuprof.step` opened and must close; the
            driver closes the others.
    """

    def __init__(self) -> None:
        self.planned = StepWindows()
        self.step: int | None = None
        self.running: int | None = None
        self.captured: Window | None = None
        self.armed: Window | None = None
        self.opened_by_step: dict[int, Window] = {}

    @property
    def open(self) -> Window | None:
        """The planned window that is open."""
        return self.armed or self.captured

    def is_open(self, number: int) -> bool:
        """Whether a planned window is open."""
        window = self.open
        return window is not None and window.number == number

    def plan(self, window: Window) -> None:
        """Add a window that the worker's row did not have."""
        if self.planned.numbered(window.number) is None:
            self.planned.add([window])

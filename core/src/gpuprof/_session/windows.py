"""A worker's windows, found by their step: at every step, so quickly; and by their number, as they
are opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import attrs

from gpuprof.backend.types import Window, Windows


class StepWindows:
    """Windows that do not overlap. One thread may add some while another one looks.

    >>> windows = StepWindows([Window(1, 3, 4)])
    >>> windows.add([Window(0, 7, 9)])
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
        """Those that have steps, by their first one."""
        return tuple(self._table[1])

    def at(self, step: int) -> Window | None:
        """The window that `step` lies in."""
        starts, windows = self._table
        position = bisect_right(starts, step) - 1
        return windows[position] if position >= 0 and step in windows[position] else None

    def numbered(self, number: int) -> Window | None:
        """The window of a number, from 1."""
        return self._by_number.get(number)

"""A worker's windows: the planned ones, and the state of each."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

import attrs

from gpuprof._session.file import WindowEntry, WindowState, new_entry
from gpuprof.backend.types import Window

BUSY: tuple[WindowState, ...] = ("opening", "open", "closing")
"""The states in which the profiler is busy with a window."""
_NEXT: Mapping[WindowState, tuple[WindowState, ...]] = {
    "planned": ("opening", "refused", "failed"),
    "asked": ("opening", "refused", "failed"),
    "opening": ("open", "closing", "failed"),
    "open": ("closing", "failed"),
    "closing": ("closed", "failed"),
    "closed": (),
    "refused": (),
    "failed": (),
}


class StepWindows:
    """Planned windows, which do not overlap.

    Finds a window by step or by number. Finding by step is fast, since every step does it. One
    thread may add windows while another thread looks one up.

    >>> windows = StepWindows([Window(1, 3, 4)])
    >>> added = windows.add([Window(0, 7, 9)])
    >>> [getattr(windows.at(step), "number", None) for step in (3, 5, 8)]
    [1, None, 2]
    """

    def __init__(self, windows: Iterable[Window] = ()) -> None:
        self._table: tuple[list[int], list[Window]] = ([], [])
        self.add(windows)

    def add(self, windows: Iterable[Window]) -> tuple[Window, ...]:
        """Add windows; a window with the number 0 gets the next number.

        Skips windows that overlap earlier ones, and returns the windows that were added.
        """
        starts, table = list(self._table[0]), list(self._table[1])
        new_windows = []
        for window in windows:
            start, stop = window.start or 0, window.stop or 0  # a whole life contains no step
            position = bisect_right(starts, start)
            if (position and start in table[position - 1]) or (
                position < len(starts) and starts[position] < stop
            ):
                continue
            window = attrs.evolve(window, number=window.number or len(table) + 1)
            starts.insert(position, start)
            table.insert(position, window)
            new_windows.append(window)
        self._table = (starts, table)
        return tuple(new_windows)

    @property
    def all(self) -> tuple[Window, ...]:
        """The windows, in the order of their first steps."""
        return tuple(self._table[1])

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The steps of the windows, as half-open ranges."""
        return [(w.start, w.stop) for w in self.all if w.start is not None and w.stop is not None]

    def at(self, step: int) -> Window | None:
        """The window that contains `step`; ``None`` if none does."""
        starts, windows = self._table
        position = bisect_right(starts, step) - 1
        return windows[position] if position >= 0 and step in windows[position] else None

    def numbered(self, number: int) -> Window | None:
        """The window with the given number, counted from 1; ``None`` if there is none."""
        return next((window for window in self.all if window.number == number), None)


class Windows:
    """The one record of a worker's windows.

    The worker's session keeps the record, in types that JSON has. The driver keeps a copy for each
    worker, with the windows that it has asked for and the worker's answers. A window changes its
    state only through these methods; a call that the window's state does not allow changes nothing.
    Only one window can be open at a time.

    In a worker, all methods that change the record run on the control thread, except `ask`.

    Args:
        plan: the windows that are known from the start.
        note: called with a window and its new state, from ``opening`` on.

    Attributes:
        current: the window that is opening, open or closing; ``None`` without one.

    >>> windows = Windows([Window(1, 3, 4)])
    >>> windows.begin(Window(1, 3, 4)), windows.state(1), windows.current.label
    (True, 'opening', 'step-3')
    >>> windows.opened(), windows.begin_closing(), windows.end(), windows.state(1)
    (None, None, None, 'closed')
    """

    def __init__(
        self,
        plan: Iterable[Window] = (),
        note: Callable[[Window, str], object] = lambda window, state: None,
    ) -> None:
        self.planned = StepWindows(plan)
        self.current: Window | None = None
        self._entries: dict[int, WindowEntry] = {}
        self._note = note
        self._since = 0.0

    @property
    def entries(self) -> list[WindowEntry]:
        """The entries of the windows that were opened or refused, or that have failed."""
        entries = list(self._entries.values())
        return [entry for entry in entries if entry["state"] not in ("planned", "asked")]

    def entry(self, number: int) -> WindowEntry | None:
        """The entry of a window; ``None`` for a window that was not asked for."""
        return self._entries.get(number)

    def state(self, number: int) -> WindowState:
        """The state of a window."""
        entry = self._entries.get(number)
        return "planned" if entry is None else entry["state"]

    def problem(self, number: int) -> str | None:
        """What went wrong with a window, or ``None``. A refused window is not an error."""
        entry = self._entries.get(number)
        return entry["error"] if entry is not None and entry["state"] != "refused" else None

    def is_open(self, number: int) -> bool:
        """Whether a window is opening, open or closing."""
        return self.current is not None and self.current.number == number

    def can_open(self, number: int) -> bool:
        """Whether a window may still open. Each window opens at most once."""
        return "opening" in _NEXT[self.state(number)]

    def ask(self, window: Window) -> None:
        """Note that a window was asked for."""
        # one atomic call: the control thread may open the window now, if the driver asked, too
        self._entries.setdefault(window.number, new_entry(window, "asked"))

    def refuse(self, window: Window, reason: str) -> None:
        """Note that a window was refused and will not open."""
        self._move(window, "refused", reason)

    def fail(self, window: Window, reason: str) -> None:
        """Note that a window did not open, or that its state is not known."""
        self._move(window, "failed", reason)

    def begin(self, window: Window) -> bool:
        """Note that a window is opening, unless another one is open. Returns whether it was noted.

        Returns ``False`` as well for a window that may no longer open.
        """
        return self.current is None and self._move(window, "opening")

    def opened(self) -> None:
        """Note that the profiler has opened the current window."""
        self._advance("open")

    def blame(self, window: Window, reason: str) -> None:
        """Note what went wrong with a window. Only the first reason is kept: it is the cause."""
        entry = self._entries[window.number]
        entry["error"] = entry["error"] or reason

    def begin_closing(self) -> None:
        """Note that the current window is closing."""
        self._advance("closing")

    def end(self) -> None:
        """Note that the profiler has closed the current window, or failed to open or close it."""
        error = self.current is not None and self._entries[self.current.number]["error"]
        self._advance("failed" if error else "closed")

    def take(self, window: Window, entry: WindowEntry) -> None:
        """Copy a worker's entry of its window.

        The entry may have any state, since a restarted worker begins with an empty record.
        """
        if entry["state"] in _NEXT:
            self._entries[window.number] = entry
            self._set_current(window, entry["state"])

    def _advance(self, state: WindowState) -> None:
        if self.current is not None:
            self._move(self.current, state)

    def _move(self, window: Window, state: WindowState, error: str | None = None) -> bool:
        entry = self._entries.setdefault(window.number, new_entry(window))
        if state not in _NEXT[entry["state"]]:
            return False
        if state == "opening":
            entry["opened"] = time.time()
        elif state == "closing":
            entry["seconds"] = time.perf_counter() - self._since
        elif state in ("closed", "failed") and entry["opened"] is not None:
            entry["closed"] = time.time()
        if state in ("opening", "open"):
            self._since = time.perf_counter()
        entry["state"], entry["error"] = state, entry["error"] or error
        self._set_current(window, state)
        if entry["opened"] is not None:
            self._note(window, state)
        return True

    def _set_current(self, window: Window, state: WindowState) -> None:
        if state in BUSY:
            self.current = window
        elif self.is_open(window.number):
            self.current = None

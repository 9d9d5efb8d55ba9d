"""A worker's windows: which are planned, and what has become of each."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

import attrs

from gpuprof._session.file import WindowEntry, WindowState, new_entry
from gpuprof.backend.types import Window

BUSY: tuple[WindowState, ...] = ("opening", "open", "closing")
"""The states in which the profiler has a window."""
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

    Finds one by step, quickly, since every step looks; or by number. One thread may add windows
    while another one looks.

    >>> windows = StepWindows([Window(1, 3, 4)])
    >>> added = windows.add([Window(0, 7, 9)])
    >>> [getattr(windows.at(step), "number", None) for step in (3, 5, 8)]
    [1, None, 2]
    """

    def __init__(self, windows: Iterable[Window] = ()) -> None:
        self._table: tuple[list[int], list[Window]] = ([], [])
        self.add(windows)

    def add(self, windows: Iterable[Window]) -> tuple[Window, ...]:
        """Add windows; one with the number 0 gets the next number.

        Skips windows that overlap earlier ones. Returns the others.
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
        """The windows, by their first step."""
        return tuple(self._table[1])

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The steps of the windows, as half-open ranges."""
        return [(w.start, w.stop) for w in self.all if w.start is not None and w.stop is not None]

    def at(self, step: int) -> Window | None:
        """The window that contains `step`."""
        starts, windows = self._table
        position = bisect_right(starts, step) - 1
        return windows[position] if position >= 0 and step in windows[position] else None

    def numbered(self, number: int) -> Window | None:
        """The window with a number, from 1."""
        return next((window for window in self.all if window.number == number), None)


class Windows:
    """The one record of a worker's windows.

    The worker's session keeps it, in types that JSON has. The driver keeps a copy for each worker,
    of what it has asked for and what the worker has answered. The methods are the only transitions;
    one that a window's state does not allow changes nothing. Only one window can be open.

    In a worker, every method that changes something but `ask` runs on the control thread.

    Args:
        planned: the windows that are known from the start.
        note: called with a window and its new state, from ``opening`` on.

    Attributes:
        planned: the windows that may open.
        current: the window that the profiler has: opening, open or closing.

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
        """The windows that were opened or refused, or have failed, in that order."""
        entries = list(self._entries.values())
        return [entry for entry in entries if entry["state"] not in ("planned", "asked")]

    def entry(self, number: int) -> WindowEntry | None:
        """What has become of a window; ``None`` for one that was not asked for."""
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
        """Whether the profiler has a window."""
        return self.current is not None and self.current.number == number

    def can_open(self, number: int) -> bool:
        """Whether a window may still open. It does so once."""
        return "opening" in _NEXT[self.state(number)]

    def ask(self, window: Window) -> None:
        """Ask for a window."""
        # in one go: the control thread may open it now, as the driver asks for it, too
        self._entries.setdefault(window.number, new_entry(window, "asked"))

    def refuse(self, window: Window, reason: str) -> None:
        """Do not open a window."""
        self._move(window, "refused", reason)

    def fail(self, window: Window, reason: str) -> None:
        """A window did not open, or nobody knows what has become of it."""
        self._move(window, "failed", reason)

    def begin(self, window: Window) -> bool:
        """Begin to open a window, unless another one is open. Returns whether it has begun."""
        return self.current is None and self._move(window, "opening")

    def opened(self) -> None:
        """The profiler has opened the current window."""
        self._advance("open")

    def blame(self, window: Window, reason: str) -> None:
        """Note what went wrong with a window. What fails first is the cause."""
        entry = self._entries[window.number]
        entry["error"] = entry["error"] or reason

    def begin_closing(self) -> None:
        """Begin to close the current window."""
        self._advance("closing")

    def end(self) -> None:
        """The profiler has closed the current window, or failed to open or close it."""
        error = self.current is not None and self._entries[self.current.number]["error"]
        self._advance("failed" if error else "closed")

    def take(self, window: Window, entry: WindowEntry) -> None:
        """Copy what a worker says of its window. A restarted worker begins anew."""
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

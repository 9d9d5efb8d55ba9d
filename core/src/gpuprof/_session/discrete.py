"""Discrete capture: each matching outermost scope in a planned window gets its own window."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from gpuprof_timing import set_range_opener

from gpuprof._config.selection import matches
from gpuprof._log import log
from gpuprof._session.capture import Capture
from gpuprof._session.windows import Windows
from gpuprof.backend.types import Window

OnControl = Callable[[Callable[[], str | None]], str | None]


class DiscreteWindows:
    """Opens and closes a window for each matching outermost scope.

    Args:
        on_control: runs a function on the control thread and waits for it.
        labels: the scopes to capture: names or wildcards.
        limit: the maximum number of windows; further scopes are counted, not captured.
        spent: whether the run's files on this node have reached ``max_bytes``.

    Attributes:
        skipped: how many matching scopes were not captured, by the limit that stopped them:
            ``max_windows`` or ``max_bytes``.
    """

    def __init__(
        self,
        capture: Capture,
        windows: Windows,
        on_control: OnControl,
        labels: tuple[str, ...],
        limit: int,
        spent: Callable[[], object],
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._spent = spent
        self._capture = capture
        self._planned = windows
        self._on_control = on_control
        self._labels = labels
        self._limit = limit
        self._occurrences: Counter[tuple[str, str]] = Counter()
        # Held while any thread or task captures a scope. Scopes that begin meanwhile, nested or
        # concurrent, are not captured.
        self._taken = threading.Lock()

    def arm(self, window: Window) -> None:
        """Start capturing scopes; those already open are not captured."""
        if self._planned.current is not None:
            self.disarm(self._planned.current.number)  # its close was lost
        if self._planned.begin(window):
            self._planned.opened()
            self._watch()

    def disarm(self, number: int) -> None:
        """Stop capturing scopes, and close the open window."""
        if self._planned.is_open(number):
            self._planned.begin_closing()
            scope = self._capture.windows.current
            if scope is not None:
                self._capture.stop(scope.number)
            set_range_opener(None)
            self._planned.end()

    def begin(self, label: str) -> str | None:
        """Open a window for a scope. Runs on the control thread."""
        window = self._planned.current
        if window is None:
            return None
        count = len(self._capture.windows.entries)
        limit = "max_windows" if count >= self._limit else "max_bytes" if self._spent() else None
        if limit:
            if not self.skipped[limit]:
                log().warning(
                    "%s: %s reached after %d scopes; further scopes are counted, not captured",
                    self._capture.worker.name,
                    limit,
                    count,
                )
            self.skipped[limit] += 1
            return None
        self._occurrences[window.step, label] += 1
        occurrence = self._occurrences[window.step, label]
        return self._capture.start(Window(count + 1, window.start, window.stop, label, occurrence))

    def end(self) -> str | None:
        """Close the scope's window. Runs on the control thread."""
        window = self._capture.windows.current
        problem = self._capture.stop(window.number) if window is not None else None
        self._watch()
        return problem

    def _watch(self) -> None:
        if self._planned.current is not None and not self._capture.faulted:
            set_range_opener(self._open, self._capture.range_fault)

    def _open(self, name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        """Open a window if the scope matches.

        This is the range opener between captures. During a capture, the backend's range opener
        replaces it.
        """
        if not matches(name, self._labels) or not self._taken.acquire(blocking=False):
            return nullcontext()
        return self._window(name, crosses_tasks)

    @contextmanager
    def _window(self, label: str, crosses_tasks: bool) -> Iterator[None]:
        """A window around a scope, with the scope's range inside."""
        try:
            self._on_control(lambda: self.begin(label))
            window = self._capture.windows.current
            opener = self._capture.range_opener(window) if window is not None else None
            with nullcontext() if opener is None else opener(label, crosses_tasks):
                yield
        finally:
            self._on_control(self.end)
            self._taken.release()

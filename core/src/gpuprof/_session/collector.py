"""Records when Python's garbage collector stopped this process."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

LEAST_PAUSE = 1_000_000
"""The shortest collection that is kept, in nanoseconds. Shorter ones are many, and do not matter to
a step."""
_MOST = 1 << 16


class Collections:
    """The long runs of the garbage collector, each of which stops every thread of the process.

    Whichever thread happens to allocate runs the collector, so a collection belongs to no scope.
    The interpreter may call `_note` in the middle of any code, gpuprof's included, so `_note` must
    not take a lock.

    >>> collections = Collections(iter([5, 2_000_005]).__next__)
    >>> collections._note("start", {"generation": 2})
    >>> collections._note("stop", {"generation": 2})
    >>> collections.take()
    ([(2, 5, 2000005)], 0)
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._began: int | None = None
        self._rows: list[tuple[int, int, int]] = []
        self._lost = 0

    def begin(self) -> None:
        """Start recording."""
        gc.callbacks.append(self._note)

    def end(self) -> None:
        """Stop recording. The collections recorded so far can still be taken."""
        with contextlib.suppress(ValueError):  # it has ended, or never begun
            gc.callbacks.remove(self._note)

    def take(self) -> tuple[list[tuple[int, int, int]], int]:
        """The collections since the last call, and how many were lost.

        Each collection is its generation, start and end.
        """
        size = len(self._rows)  # a collection may add a row meanwhile
        rows = self._rows[:size]
        del self._rows[:size]
        losses, self._lost = self._lost, 0
        return rows, losses

    def _note(self, phase: str, about: dict[str, Any]) -> None:
        now = self._clock()
        if phase == "start":
            self._began = now
            return
        began, self._began = self._began, None
        if began is None or now - began < LEAST_PAUSE:
            return
        if len(self._rows) >= _MOST:
            self._lost += 1
        else:
            self._rows.append((about["generation"], began, now))

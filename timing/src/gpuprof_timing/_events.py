"""Recording every scope as an event, for timelines."""

from __future__ import annotations

import sys
import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class EventLog:
    """The last scopes, in a ring.

    Args:
        size: how many are kept. Older ones are dropped and counted.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._ring: deque[tuple[str, int, int, int, str | None]] = deque(maxlen=size)
        self._added = 0

    @property
    def dropped(self) -> int:
        """How many scopes the ring had no room for."""
        return self._added - len(self._ring)

    def add(self, key: str, start: int, end: int) -> None:
        """Record a scope that ends in this thread and task. Clock's nanoseconds."""
        self._added += 1
        self._ring.append((key, start, end, threading.get_ident(), _task()))

    def clear(self) -> None:
        """Forget everything."""
        self._ring.clear()
        self._added = 0

    def to_chrome(self, name: str, process: int, wall: int) -> dict[str, Any]:
        """The events as a Chrome trace, with a track for each thread and each task.

        The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

        Args:
            name: of the process.
            process: its id.
            wall: what to add to the clock for nanoseconds since the epoch.
        """
        tracks: dict[tuple[int, str | None], int] = {}
        events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}]
        spans = []
        kept = list(self._ring)
        kept.reverse()  # the inner one was added first; of two that coincide readers take the first for the outer one
        kept.sort(key=lambda event: (event[1], -event[2]))
        for key, start, end, thread, task in kept:
            track = tracks.setdefault((thread, task), len(tracks) + 1)
            # Whole microseconds: floating point has no room for a fraction of so many, and a span whose end is rounded past the end
            # of the one around it is dropped by Perfetto.
            begin, stop = (start + wall) // 1000, (end + wall) // 1000
            span = {"ph": "X", "name": key, "cat": "gpuprof", "pid": process, "tid": track, "ts": begin, "dur": stop - begin}
            spans.append(span)
        for (thread, task), track in tracks.items():
            title = f"thread {thread}" if task is None else f"{task} (thread {thread})"
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": title}})
        return {"traceEvents": events + spans, "displayTimeUnit": "ms", "otherData": {"dropped": self.dropped}}


def _task() -> str | None:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return None
    task = asyncio.current_task()
    return task.get_name() if task is not None else None

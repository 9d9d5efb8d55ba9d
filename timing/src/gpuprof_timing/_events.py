"""Recording every scope as an event, for timelines."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Track:
    """A thread or a task, inside of which code runs sequentially.

    An identity of its own, as threads' ids and names are reused.

    Args:
        name: its name when first seen.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Here(threading.local):
    """A fresh instance for each thread."""

    def __init__(self) -> None:
        self.thread = Track(threading.current_thread().name)


class EventLog:
    """The last scopes, in a ring.

    Args:
        size: how many to keep. Older ones are dropped and counted.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._ring: deque[tuple[str, int, int, Track]] = deque(maxlen=size)
        self._added = 0
        self._here = _Here()
        self._tasks: weakref.WeakKeyDictionary[Any, Track] = weakref.WeakKeyDictionary()

    @property
    def dropped(self) -> int:
        """The number of scopes dropped from the ring."""
        return self._added - len(self._ring)

    def add(self, key: str, start: int, end: int) -> None:
        """Record a scope that ends in this thread and task. Clock's nanoseconds."""
        self._added += 1
        self._ring.append((key, start, end, self._find_track()))

    def _find_track(self) -> Track:
        thread = self._here.thread
        asyncio = sys.modules.get("asyncio")
        if asyncio is None or asyncio._get_running_loop() is None:
            return thread
        task = asyncio.current_task()
        if task is None:
            return thread
        track = self._tasks.get(task)
        if track is None:
            track = self._tasks[task] = Track(f"{task.get_name()} ({thread.name})")
        return track

    def clear(self) -> None:
        """Forget everything."""
        self._ring.clear()
        self._added = 0

    def to_chrome(self, name: str, process: int, wall: int) -> dict[str, Any]:
        """The events as a Chrome trace, with a track for each thread and each task.

        Scopes of one thread may overlap without nesting, for instance in generators. Viewers drop
        or misplace such spans, so these go to further tracks of the same name.

        The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

        Args:
            name: the process's name.
            process: the process's id.
            wall: what to add to the clock for nanoseconds since the epoch.
        """
        # of each, the ends of the spans around the place that is reached
        lanes: dict[Track, list[list[int]]] = {}
        tracks: dict[tuple[Track, int], int] = {}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        ]
        spans = []
        rows = list(self._ring)
        # the inner one was added first; of two that coincide readers take the first for the outer
        # one
        rows.reverse()
        rows.sort(key=lambda event: (event[1], -event[2]))
        for key, start, end, track in rows:
            # Whole microseconds: floating point has no room for a fraction of so many, and a span
            # whose end is rounded past the end of the one around it is dropped by Perfetto.
            begin, stop = (start + wall) // 1000, (end + wall) // 1000
            number = tracks.setdefault(
                (track, _find_lane(lanes.setdefault(track, []), begin, stop)), len(tracks) + 1
            )
            span = {
                "ph": "X",
                "name": key,
                "cat": "gpuprof",
                "pid": process,
                "tid": number,
                "ts": begin,
                "dur": stop - begin,
            }
            spans.append(span)
        for (track, _), number in tracks.items():
            events.append(
                {
                    "ph": "M",
                    "name": "thread_name",
                    "pid": process,
                    "tid": number,
                    "args": {"name": track.name},
                }
            )
        return {
            "traceEvents": events + spans,
            "displayTimeUnit": "ms",
            "otherData": {"dropped": self.dropped},
        }


def _find_lane(lanes: list[list[int]], begin: int, stop: int) -> int:
    """The first lane in which a span nests properly.

    Called for spans in the order of their start.
    """
    for lane, ends in enumerate(lanes):
        while ends and ends[-1] <= begin:
            ends.pop()
        if not ends or stop <= ends[-1]:
            ends.append(stop)
            return lane
    lanes.append([stop])
    return len(lanes) - 1

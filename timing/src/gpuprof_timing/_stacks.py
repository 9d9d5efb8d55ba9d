"""What all threads run now, and in which scopes and tasks."""

from __future__ import annotations

import sys
from _thread import allocate_lock

from gpuprof_timing._compiled import hot
from gpuprof_timing._spans import living

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import CodeType, FrameType
    from typing import Any, TypeAlias

    from gpuprof_timing._node import Node

    Frame: TypeAlias = "tuple[CodeType, dict[str, Any], int]"

CAN_SAMPLE: bool = (
    hasattr(hot, "stacks")
    if sys.version_info[:2] == (3, 11)
    else getattr(sys, "_is_gil_enabled", lambda: True)()
)
"""Whether `stacks` is safe: in Python 3.11 it needs the compiled module, which says why."""


def _stacks(
    old_stacks: Mapping[int, object], most: int
) -> list[tuple[int, int, Sequence[Frame] | None]]:
    rows: list[tuple[int, int, Sequence[Frame] | None]] = []
    for thread, innermost in sys._current_frames().items():
        frames: list[FrameType] = []
        key: list[int] = []
        frame: FrameType | None = innermost
        while frame is not None and len(frames) < most:
            frames.append(frame)
            key += (id(frame.f_code), frame.f_lasti)
            frame = frame.f_back
        number = hash(tuple(key))
        places = None
        if number not in old_stacks:
            places = [(entry.f_code, entry.f_globals, entry.f_lasti) for entry in frames]
        rows.append((thread, number, places))
    return rows


stacks: Callable[[Mapping[int, object], int], list[tuple[int, int, Sequence[Frame] | None]]] = (
    getattr(hot, "stacks", _stacks)
)
"""The stack of each thread: its id, a key of 64 bits, and the frames from the innermost one out.

Equal stacks have one key while their code objects live. Frames are ``None`` if the key is in the
mapping `known`; there are at most so many of a thread.
"""


class _Alarm:
    """Lets one thread sleep until it rings.

    A thread that wakes waits for the GIL, and in Python nothing tells for how long. It must be the
    same thread each time.
    """

    __slots__ = ("_quiet",)

    def __init__(self) -> None:
        self._quiet = allocate_lock()
        self._quiet.acquire()

    def ring(self) -> None:
        """Wake the thread, and let it sleep no more."""
        if self._quiet.locked():
            self._quiet.release()

    def sleep(self, seconds: float) -> float | None:
        """Sleep, unless it rings.

        Returns:
            For how many seconds the thread then had a processor, and waited for the GIL; 0 if that
            is not known. ``None`` if it rang.
        """
        if self._quiet.acquire(timeout=max(0.0, seconds)):
            self._quiet.release()
            return None
        return 0.0


Alarm: type[_Alarm] = getattr(hot, "Alarm", _Alarm)
"""Lets one thread sleep until it rings. Compiled, it tells how long that thread waits for the GIL,
where the kernel counts how long a thread lacks a processor."""


def open_nodes(clock: Callable[[], int]) -> dict[int, Node]:
    """The node of the innermost open scope of each thread, by the thread's id.

    Of the trees that have this clock. Scopes of asyncio's tasks are in no thread's.
    """
    latest: dict[int, tuple[int, Node]] = {}
    for recording in living():
        if recording.clock is not clock:
            continue
        for reference in recording.moving.valuerefs():
            cursor = reference()
            thread = cursor and cursor.track
            if thread is None:
                continue
            scope = cursor.scope
            while scope.node is None:
                scope = scope.parent
            node = scope.node
            if node is None or node.parent is None:  # it has just ended; or none is open
                continue
            start = scope.started or 0
            if thread not in latest or latest[thread][0] < start:
                latest[thread] = start, node
    return {thread: node for thread, (_, node) in latest.items()}


def task_tracks() -> dict[int, tuple[int, int]]:
    """The tracks of asyncio's tasks that run now, by their threads' ids."""
    tasks = getattr(sys.modules.get("asyncio.tasks"), "_current_tasks", {})
    tracks = {}
    for loop, task in list(tasks.items()):
        thread = getattr(loop, "_thread_id", None)
        if thread is not None:
            tracks[thread] = thread, id(task)
    return tracks

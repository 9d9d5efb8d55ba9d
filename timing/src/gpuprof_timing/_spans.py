"""Spans: single scopes with their start and end, kept in bounded number.

A process-wide slot, like the one for ranges: it is filled while a `SpanLog` records. An empty one
costs a scope the look at one attribute of its node.

Each node has room for a few spans. A scope whose node has none left only notes its end; its calls
are counted by the tree as always. `SpanLog` makes room again at the end of an interval, and then
finds from the tree how many calls, and how much time, its spans do not show. So a scope in a hot
loop costs next to nothing, and nothing is ever lost without being counted.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from _thread import get_ident
from typing import NamedTuple

from gpuprof_timing._node import Node, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeAlias

    Track: TypeAlias = "int | tuple[int, int] | Linked"
    """A thread's id, that and a task's, or one of them with links."""

ROOM = 16
"""Spans of one node in an interval."""
LINKED_ROOM = 128
"""The same for a node with links: a link that is not kept cannot be followed."""
MOST_ROWS = 1 << 16
"""Spans in memory above which no room is made until they are taken."""

add: Callable[[tuple[Any, ...]], object] | None = None
"""Appends to the buffer; ``None`` while nothing records."""
room: int | None = None
"""The room of new nodes."""
clock: Callable[[], int] | None = None
"""The clock of the trees that are recorded."""
end_top_level: Callable[[], object] = int
"""Called when a kept scope of the top level ends."""


class Linked:
    """A track, and the keys that the span shares with spans elsewhere.

    Args:
        track: the thread or task.
        role: one of `ROLES`.
        keys: texts that the other side knows, too.
    """

    __slots__ = ("keys", "role", "track")

    def __init__(self, track: int | tuple[int, int], role: str, keys: tuple[str, ...]) -> None:
        self.track = track
        self.role = role
        self.keys = keys


ROLES = ("waits", "releases", "meets")
"""What a span with a key does: it waits for the end of the span that releases the key, releases it
by its own end, or meets all others of the key: none ends before the last has begun."""


class Span(NamedTuple):
    """One call: a scope, in the clock's nanoseconds."""

    node: Node
    start: int
    end: int
    track: Track


class Folded:
    """Calls of one node that are not kept as single spans.

    Args:
        node: the node.
        count: how many.
        busy: their nanoseconds, added up.
        start: where the first of them began, or shortly before.
        end: where the last of them ended.
        track: of the last kept span before them; 0 if there was none.
    """

    __slots__ = ("busy", "count", "end", "node", "start", "track")

    def __init__(
        self, node: Node, count: int, busy: int, start: int, end: int, track: Track
    ) -> None:
        self.node = node
        self.count = count
        self.busy = busy
        self.start = start
        self.end = end
        self.track = track


class Mark:
    """A moment.

    Args:
        what: whatever the caller of `SpanLog.mark` passed.
        time: the clock's nanoseconds.
    """

    __slots__ = ("time", "what")

    def __init__(self, what: object, time: int) -> None:
        self.what = what
        self.time = time


recordings: weakref.WeakSet[Any] = weakref.WeakSet()
"""Of every `Timing` of the process."""


def roots(clock: Callable[[], int]) -> list[Node]:
    """The roots of the trees that have this clock."""
    return [recording.root for recording in list(recordings) if recording.clock is clock]


def task_track() -> int | tuple[int, int]:
    """The track of the running code, where an event loop may run."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return get_ident()
    task = asyncio.current_task()
    return get_ident() if task is None else (get_ident(), id(task))


class SpanLog:
    """Records the spans of every `Timing` of the process that has the same clock.

    One at a time. A forked child begins without it.

    Args:
        clock: returns nanoseconds.

    >>> from gpuprof_timing import Timing
    >>> from gpuprof_timing._spans import SpanLog
    >>> ticks = iter(range(100))
    >>> clock = lambda: next(ticks)
    >>> timing, log = Timing("t", clock=clock), SpanLog(clock)
    >>> log.begin()
    >>> for _ in range(18):
    ...     with timing.add_time("load"):
    ...         pass
    >>> log.end()
    >>> *kept, last = log.take()
    >>> [(row.start, row.end) for row in kept[:3]], len(kept)
    ([(2, 3), (4, 5), (6, 7)], 16)
    >>> last.node.key, last.count, last.busy, last.end
    ('load', 2, 2, 37)
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.clock = clock
        self._buffer: list[Any] = []
        self._earlier: list[Any] = []
        self._looked = 0
        self._touched: set[Any] = set()
        self._thin: set[Node] = set()
        self._last: dict[Node, tuple[int, Track]] = {}
        self._lock = threading.RLock()  # a signal's handler may begin a step

    def begin(self) -> None:
        """Start to record.

        Raises:
            RuntimeError: another one records.
        """
        global add, clock, end_top_level, room
        if add is not None:
            raise RuntimeError("another SpanLog records in this process")
        for node in self._nodes():
            node.counted, node.counted_total = node.count, node.total
            node.room = self._room_of(node)
        room, clock, end_top_level = ROOM, self.clock, self._end_of_top_level
        add = self._buffer.extend

    def end(self) -> None:
        """Stop recording. What was recorded can still be taken."""
        global add, clock, room
        if add is None:
            return
        self._cut()
        add = room = clock = None
        for node in self._nodes():
            node.room = None

    def mark(self, what: object) -> None:
        """End the interval here, and note what happens in this thread now."""
        with self._lock:
            self._cut()
            self.note(what)

    def note(self, what: object) -> None:
        """Note what happens in this thread now. The interval goes on."""
        now = self.clock()
        self._buffer.extend((Mark(what, now), now, now, get_ident()))

    def thin(self, nodes: Iterable[Node]) -> None:
        """From now on keep no single spans of these nodes, only what they add up to."""
        with self._lock:
            for node in nodes:
                self._thin.add(node)
                node.room = 0

    def take(self) -> Iterator[Span | Folded | Mark]:
        """End the interval, and yield what was recorded until the last call.

        Threads may still append to what was recorded since, so that comes at the next call; once
        the recording has ended, all comes at once.
        """
        global add
        ended = add is None
        with self._lock:
            self._cut()
            rows, self._earlier = self._earlier, self._buffer
            self._buffer, self._looked = [], 0
            if not ended:
                add = self._buffer.extend
        yield from self._read(rows)
        if ended:
            rows, self._earlier = self._earlier, []
            yield from self._read(rows)

    def _read(self, rows: list[Any]) -> Iterator[Span | Folded | Mark]:
        last = self._last
        each = iter(rows)
        for what, start, end, track in zip(each, each, each, each):  # noqa: B905 - always whole
            if type(what) is Node:
                what.counted += 1
                what.counted_total += end - start
                last[what] = end, track
                yield Span(what, start, end, track)
            elif type(what) is Mark:
                yield what
            else:  # `what` calls were counted so far, with `start` nanoseconds; of the node `track`
                count, node = what, track
                shown, busy = count - node.counted, start - node.counted_total
                node.counted, node.counted_total = count, start
                if shown > 0:
                    since, where = last.get(node, (max(0, end - busy), 0))
                    last[node] = end, where
                    yield Folded(node, shown, busy, min(since, end), end, where)

    def _nodes(self) -> Iterator[Node]:
        for root in roots(self.clock):
            yield from walk(root)

    @staticmethod
    def _room_of(node: Node) -> int:
        return ROOM if node.waits_for is None else LINKED_ROOM

    def _look(self) -> set[Any]:
        """The nodes with spans in this interval."""
        end = len(self._buffer)
        self._touched.update(self._buffer[self._looked : end : 4])
        self._looked = end
        return self._touched

    def _cut(self) -> None:
        with self._lock:
            nodes = self._look() | self._thin
            self._touched = set()
            self._make_room(nodes)

    def _end_of_top_level(self) -> None:
        """Make room for what lies below the top level: its next scope is another interval there."""
        with self._lock:
            deep = {node for node in self._look() if type(node) is Node and node.depth > 1}
            self._touched -= deep
            self._make_room(deep)

    def _make_room(self, nodes: Iterable[Any]) -> None:
        crowded = len(self._buffer) > 4 * MOST_ROWS
        for node in nodes:
            if type(node) is not Node:
                continue
            if not node.room:
                self._buffer.extend((node.count, node.total, node.until, node))
            if not crowded and node not in self._thin:
                node.room = self._room_of(node)


def _after_fork() -> None:
    global add, clock, room
    add = room = clock = None


os.register_at_fork(after_in_child=_after_fork)

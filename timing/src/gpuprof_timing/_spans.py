"""Spans: single scopes with their start and end, kept in bounded number.

A process-wide slot, like the one for ranges: it is filled while a `SpanLog` records. An empty one
costs a scope the look at one variable.

Each node has room for a few spans in an interval. A scope whose node has none left is folded: its
node counts it, adds up its time, and remembers where such calls began and ended. So a scope in a
hot loop takes no memory, and spans and folds together are all calls of the tree, to the nanosecond.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
import weakref
from _thread import get_ident
from itertools import chain
from operator import add
from typing import NamedTuple

from gpuprof_timing._compiled import hot, slots_in_c
from gpuprof_timing._node import Node, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

Track: TypeAlias = "int | tuple[int, int] | Linked"
"""A thread's id, that and a task's, or one of them with links."""
Key: TypeAlias = (
    "str | bytes | tuple[str | bytes, ...] | Callable[..., str | tuple[str | bytes, ...]]"
)
"""One text or several that both sides of a wait know, or what makes them as a scope ends."""

ROOM = 16
"""Spans of one node in an interval."""
LINKED_ROOM = 128
"""The same for a node with links: a link that is not kept cannot be followed."""
TOP_ROOM = 512
"""The same at the top level while the process marks no steps: an interval is a second there, in
which its caller may have many steps."""
MOST_ROWS = 1 << 16
"""Spans in memory above which all further ones are folded until these are taken."""
ALL_DEPTHS = 1 << 30
_INTEGERS = "%dl" if sys.byteorder == "little" and struct.calcsize("l") == 8 else "<%dq"
"""So many integers in a file. A native ``l`` takes half as long to pack as a ``q``."""

depth: int = ALL_DEPTHS
"""Nodes at this depth and deeper keep nothing."""
top_room: int = TOP_ROOM
"""The least room of a node at the top level."""
clock: Callable[[], int] | None = None
"""The clock of the trees that are recorded."""


def _drop(row: tuple[Any, ...]) -> None:
    """Nothing records."""


@slots_in_c
class Recorder:
    """What a scope asks as it ends. There is one, `recorder`.

    Attributes:
        interval: the current one, a new object each time; ``None`` while nothing records.
        add: appends a node, its start, its end and its track.
        crowd: the nodes with folded calls.
        end_top_level: called when a kept scope of the top level ends, if there is a crowd.
    """

    __slots__ = ("add", "crowd", "end_top_level", "interval")

    def __init__(self) -> None:
        self.interval: object | None = None
        self.add: Callable[[tuple[Any, ...]], object] = _drop
        self.crowd: list[Node] = []
        self.end_top_level: Callable[[], object] = int


recorder = Recorder()


class Released(str):
    """A key that a span releases although it waits for its other keys."""

    __slots__ = ()


class Linked:
    """A track, and the keys that the span shares with spans elsewhere.

    Args:
        track: the thread or task.
        role: one of `ROLES`.
        keys: texts or bytes that the other side knows, too.
    """

    __slots__ = ("keys", "role", "track")

    def __init__(
        self, track: int | tuple[int, int], role: str, keys: tuple[str | bytes, ...]
    ) -> None:
        self.track = track
        self.role = role
        self.keys = keys


if hot is not None:
    Linked = hot.Linked  # type: ignore[misc]  # the same in C

ROLES = ("waits", "releases", "meets")
"""What a span with a key does: it waits for the ends of all spans that release the key, releases it
by its own end, or meets all others of the key: none ends before the last has begun."""


class Folded(NamedTuple):
    """Calls of one node that are not kept as single spans.

    Args:
        node: the node.
        calls: how many.
        busy: their nanoseconds, added up.
        start: where the first of them began.
        end: where the last of them ended.
        track: of one of them, if it is known.
    """

    node: Node
    calls: int
    busy: int
    start: int
    end: int
    track: Track | None


class Taken(NamedTuple):
    """What was recorded.

    Args:
        rows: of each call its node, start, end and track, in the order of their ends. Nanoseconds.
        folds: calls that are known only together.
        marks: what was passed to `SpanLog.mark` or `SpanLog.note`, when, and whether it ended the
            interval.
        lost: moments for which there was no room.
        sent: of each call that was passed to `SpanLog.note_sent` its track, when sending it began
            and ended, its key, and the keys that it needs.
    """

    rows: _Rows
    folds: list[Folded]
    marks: list[tuple[Any, int, bool]]
    lost: int
    sent: list[tuple[Track, int, int, bytes, tuple[bytes, ...]]]

    @property
    def nodes(self) -> list[Node]:
        """Of the calls."""
        return self.rows.values()[::4]

    @property
    def starts(self) -> list[int]:
        """Of the calls."""
        return self.rows.values()[1::4]

    @property
    def ends(self) -> list[int]:
        """Of the calls."""
        return self.rows.values()[2::4]

    @property
    def tracks(self) -> list[Track]:
        """Of the calls."""
        return self.rows.values()[3::4]


recordings: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Of every `Timing` of the process, by their ids: other than a `WeakSet`, it can be listed while
other threads make more.
"""


def roots(clock: Callable[[], int]) -> list[Node]:
    """The roots of the trees that have this clock."""
    return [recording.root for recording in living() if recording.clock is clock]


def living() -> list[Any]:
    """All recordings, while other threads may make more."""
    return [recording for ref in recordings.valuerefs() if (recording := ref()) is not None]


def task_track() -> int | tuple[int, int]:
    """The track of the running code, where an event loop may run."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return get_ident()
    task = asyncio.current_task()
    return get_ident() if task is None else (get_ident(), id(task))


def room_of(tree_clock: Callable[[], int], node: Node) -> int | None:
    """The room of a node of a tree with the clock `tree_clock`."""
    if tree_clock is not clock or node.depth >= depth:
        return None
    room = LINKED_ROOM if node.linked else ROOM
    return max(room, top_room) if node.depth == 1 else room


class _Rows(list["Any"]):
    """Of each call that is kept its node, start, end and track; moments, and calls sent elsewhere.

    Args:
        clock: returns nanoseconds.
        most: rows above which there is no further interval, and moments that are kept.
        end_interval: does so, where more is to do than to set another one.

    Attributes:
        marks: the moments: what, when, and whether the interval ended there.
        lost: moments for which there was no room.
        sent: see `Taken`.
        spared: whether the top level has no more room than those below.
        takes_sent: whether calls that are sent are kept.
    """

    __slots__ = (
        "clock", "end_interval", "lost", "marks", "most", "sent", "spared", "takes_sent",
    )  # fmt: skip

    def __init__(
        self, clock: Callable[[], int], most: int, end_interval: Callable[[], object]
    ) -> None:
        self.clock = clock
        self.most = most
        self.end_interval = end_interval
        self.marks: list[tuple[Any, int, bool]] = []
        self.lost = 0
        self.sent: list[tuple[Track, int, int, bytes, tuple[bytes, ...]]] = []
        self.spared = False
        self.takes_sent = False

    @property
    def full(self) -> bool:
        """Whether further calls are folded."""
        return len(self) > self.most

    def note(self, what: object) -> None:
        """See `SpanLog.note`."""
        if len(self.marks) < self.most:
            self.marks.append((what, self.clock(), False))
        else:
            self.lost += 1

    def mark(self, what: object) -> None:
        """See `SpanLog.mark`."""
        if len(self.marks) < self.most:
            self.marks.append((what, self.clock(), True))
        else:
            self.lost += 1
        if not self.spared or recorder.crowd or len(self) > self.most:
            self.end_interval()
        elif recorder.interval is not None:
            recorder.interval = object()

    def note_sent(self, start: int, key: bytes, needs: tuple[bytes, ...]) -> None:
        """See `SpanLog.note_sent`."""
        if self.takes_sent and recorder.interval is not None:  # else in a forked child
            self.sent.append((task_track(), start, self.clock(), key, needs))

    def take(self) -> _Rows:
        """What there is. Threads go on appending: what comes meanwhile is taken the next time."""
        size = len(self)
        rows = _Rows(self.clock, self.most, self.end_interval)
        rows.extend(self[:size])
        del self[:size]
        return rows

    def values(self) -> list[Any]:
        """Node, start, end and track of the first row, then of the next."""
        return list(chain.from_iterable(self))

    def pack(
        self,
        places: dict[Node, int],
        tracks: dict[object, int],
        links: list[bytes],
        code_of: Callable[[Node, int, int, Track], int],
    ) -> bytes:
        """Each row as three little-endian integers of 64 bits: its code, start and end.

        Args:
            places: the number of each known node.
            tracks: what is added to it for each known track; the sum is the code.
            links: gets what `code_of` would add to it. In C: keys of eight bytes, which are 64 bits
                as they are, are packed without a call of Python.
            code_of: returns the code of a row whose node or track is not known, or has links.
        """
        if not self:
            return b""
        rows = self.values()
        nodes, on = rows[::4], rows[3::4]
        try:
            if on.count(on[0]) == len(on):  # on one track, as most are
                number = tracks[on[0]]
                codes_of_nodes = {node: places[node] + number for node in set(nodes)}
                codes = list(map(codes_of_nodes.__getitem__, nodes))
            else:
                codes = list(map(add, map(places.__getitem__, nodes), map(tracks.__getitem__, on)))
        except KeyError:
            codes = [
                places[row[0]] + tracks[row[3]]
                if row[0] in places and row[3] in tracks
                else code_of(*row)
                for row in self
            ]
        del rows[3::4]
        rows[::3] = codes
        return struct.pack(_INTEGERS % len(rows), *rows)  # much faster than each by itself


Rows: type[_Rows] = hot.Rows if hot else _Rows


class SpanLog:
    """Records the spans of every `Timing` of the process that has the same clock.

    One at a time. A forked child begins without it. Of recursion, the outermost calls are recorded:
    those that take time in the tree.

    Args:
        clock: returns nanoseconds.
        most: spans in memory above which all further ones are folded until these are taken, and
            moments above which further ones are only counted.

    Attributes:
        mark: ends the interval here, and notes what happens in this thread now.
        note: notes what happens in this thread now. The interval goes on.
        note_sent: notes a call of another process that this thread has just sent: when sending it
            began, its key, and the keys of the calls whose results it takes.

    >>> from gpuprof_timing import Timing
    >>> from gpuprof_timing._spans import SpanLog
    >>> ticks = iter(range(100))
    >>> clock = lambda: next(ticks)
    >>> timing, log = Timing("t", clock=clock), SpanLog(clock)
    >>> log.begin()
    >>> log.mark("a step begins")
    >>> for _ in range(18):
    ...     with timing.add_time("load"):
    ...         pass
    >>> log.end()
    >>> taken = log.take()
    >>> list(zip(taken.starts, taken.ends))[:3], len(taken.nodes)
    ([(3, 4), (5, 6), (7, 8)], 16)
    >>> taken.folds[0].node.key, taken.folds[0][1:5]
    ('load', (2, 2, 35, 38))
    """

    def __init__(
        self, clock: Callable[[], int] = time.perf_counter_ns, most: int = MOST_ROWS
    ) -> None:
        self.clock = clock
        self._buffer = Rows(clock, most, self._spare_or_next)
        # the buffer's own, as whoever marks steps waits for it
        self.mark: Callable[[object], object] = self._buffer.mark
        self.note: Callable[[object], object] = self._buffer.note
        self.note_sent: Callable[[int, bytes, tuple[bytes, ...]], object] = self._buffer.note_sent
        self._folds: list[Folded] = []
        self._lock = threading.RLock()  # a signal's handler may begin a step

    def begin(self) -> None:
        """Start to record.

        Raises:
            RuntimeError: another one records.
        """
        global clock, depth, top_room
        if recorder.interval is not None:
            raise RuntimeError("another SpanLog records in this process")
        clock, depth, top_room = self.clock, ALL_DEPTHS, TOP_ROOM
        recorder.crowd = []
        for node in self._nodes():
            self._prepare(node)
        recorder.end_top_level = self._end_of_top_level
        self._buffer.spared = False
        self._buffer.takes_sent = True
        recorder.add = self._buffer.append
        recorder.interval = object()

    def end(self) -> None:
        """Stop recording. What was recorded can still be taken."""
        global clock
        if recorder.interval is None:
            return
        recorder.interval = clock = None
        self._buffer.takes_sent = False
        with self._lock:
            self._fold(0)
        for node in self._nodes():
            node.limit = node.room = None
        recorder.add = _drop

    def thin(self, level: int) -> None:
        """From now on record nothing of nodes at depth `level` and deeper, and no call sent."""
        global depth
        self._buffer.takes_sent = False
        with self._lock:
            depth = level
            for node in self._nodes():
                if node.depth >= level:
                    node.limit = node.room = None

    def spare(self) -> None:
        """From now on the top level has no more room than the levels below."""
        global top_room
        with self._lock:
            top_room = 0
            self._buffer.spared = True
            for root in roots(self.clock):
                for node in root.descend():
                    node.limit = room_of(self.clock, node)

    def take(self) -> Taken:
        """End the interval. Returns what was recorded since the last call."""
        self._next_interval()
        with self._lock:
            self._fold(0)
            rows = self._buffer.take()
            folds, self._folds = self._folds, []
            count = len(self._buffer.marks)
            marks = self._buffer.marks[:count]
            del self._buffer.marks[:count]
            losses, self._buffer.lost = self._buffer.lost, 0
            count = len(self._buffer.sent)
            sent_calls = self._buffer.sent[:count]
            del self._buffer.sent[:count]
        return Taken(rows, folds, marks, losses, sent_calls)

    def _spare_or_next(self) -> None:
        """The rest of `mark`, in all but the most frequent case."""
        if not self._buffer.spared:
            self.spare()
        self._next_interval()

    def _next_interval(self) -> None:
        if recorder.crowd:
            with self._lock:
                self._fold(0)
        if recorder.interval is not None and not self._buffer.full:
            recorder.interval = object()

    def _end_of_top_level(self) -> None:
        """Make room for what lies below the top level: its next scope is another interval there."""
        with self._lock:
            nodes = self._fold(2)
            if not self._buffer.full:
                for node in nodes:
                    node.room = node.limit

    def _fold(self, level: int) -> list[Node]:
        """End the folds of nodes at depth `level` and deeper. Returns those nodes."""
        crowd = recorder.crowd
        size = len(crowd)
        nodes = crowd[:size]
        del crowd[:size]
        if level:
            crowd.extend(node for node in nodes if node.depth < level)
            nodes = [node for node in nodes if node.depth >= level]
        for node in nodes:
            # without a call in between: see `gpuprof_timing._scope`
            count, busy = node.folded, node.busy
            start, end, track = node.since, node.until, node.track
            node.folded = node.busy = 0
            if count:
                self._folds.append(Folded(node, count, busy, start, end, track))
        return nodes

    def _nodes(self) -> Iterator[Node]:
        for root in roots(self.clock):
            yield from walk(root)

    def _prepare(self, node: Node) -> None:
        node.limit = room_of(self.clock, node)
        node.room, node.interval = None, None
        node.folded = node.busy = 0


def _after_fork() -> None:
    global clock
    if recorder.interval is None:
        return
    recorder.interval = clock = None
    recorder.add, recorder.crowd = _drop, []
    for recording in living():  # scopes that the parent has opened are none of the child's
        for node in walk(recording.root):
            node.limit = node.room = None


os.register_at_fork(after_in_child=_after_fork)

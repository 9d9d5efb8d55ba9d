"""Reads ledgers, which record what each process of a run did when, and aligns their times.

`gpuprof._session.ledger` writes the files and describes their rows. NumPy is
imported only when a ledger is read, because the workers do not need it.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import attrs

from gpuprof._session import ledger as written
from gpuprof._session.blocks import BLOCK
from gpuprof._session.samples import key_of
from gpuprof._shim.safe import UnsafeFile, open_regular, parse_json
from gpuprof.errors import OutputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.void]

SUFFIX = ".ledger"
_LARGEST_LINE = 65536
_LARGEST_BLOCK = 64 * 2**20
MOST = 2**59
"""Limit of monotonic times, and of differences between clocks: 18 years in nanoseconds. With it,
every difference that a reader computes fits in 64 bits."""
_LATEST = 2**62
"""Limit of wall-clock times in nanoseconds since the epoch: the year 2116."""
_LARGEST_VALUE = 1e300
_AMOUNTS = (
    "ran", "ready", "slept", "processor", "resident", "shared", "faults", "read", "written",
    "runnable", "available", "processors", "usable",
)  # fmt: skip
"""The columns of `THREAD`, `SLEPT` and `USAGE` that are no times of a clock."""
_OF_CARDS = ("card", "percent", "memory", "clock", "reasons")
"""The same of `CARD`."""
_RANGES = {
    **dict.fromkeys(("start", "end", "time", "monotonic"), (-MOST, MOST)),
    **dict.fromkeys(("count", "busy", "bytes", *_AMOUNTS, *_OF_CARDS), (0, MOST)),
    "wall": (0, _LATEST),
}
"""Valid ranges of numbers by column; the upper limit is excluded."""

SPAN = [("place", "<u4"), ("track", "<u4"), ("start", "<i8"), ("end", "<i8")]
FOLD = [*SPAN, ("count", "<i8"), ("busy", "<i8")]
LINK = [*SPAN, ("key", "<u8"), ("role", "<u8")]
STEP = [("number", "<i8"), ("time", "<i8"), ("begins", "<u4")]
CLOCK = [("monotonic", "<i8"), ("wall", "<i8"), ("apart", "<i8")]
OPEN = [("place", "<u4"), ("start", "<i8")]
SENT = [("track", "<u4"), ("start", "<i8"), ("end", "<i8"), ("key", "<u8"), ("needs", "<u8")]
SIZE = [("place", "<u4"), ("time", "<i8"), ("bytes", "<i8")]
ITERATION = [("loop", "<u4"), ("time", "<i8")]
COLLECTION = [("generation", "<u4"), ("start", "<i8"), ("end", "<i8")]
SAMPLE = [
    ("number", "<u8"), ("sample", "<u8"), ("phase", "<u4"), ("weight", "<u4"),
    ("start", "<i8"), ("end", "<i8"),
]  # fmt: skip
BEGUN = SAMPLE[:-1]
SAMPLE_FOLD = [
    ("number", "<u8"), ("phase", "<u4"), ("start", "<i8"), ("end", "<i8"), ("count", "<i8"),
    ("busy", "<i8"),
]  # fmt: skip
NOTE = [("number", "<u8"), ("name", "<u4"), ("value", "<f8")]
ATTRIBUTE = [("name", "<u4"), ("step", "<i8"), ("time", "<i8"), ("value", "<f8")]
THREAD = [("track", "<u4"), ("time", "<i8"), ("ran", "<i8"), ("ready", "<i8")]
SLEPT = [("time", "<i8"), ("slept", "<i8")]
USAGE = [("time", "<i8"), *((name, "<i8") for name in _AMOUNTS[3:])]
CARD = [
    ("card", "<i8"), ("time", "<i8"), ("percent", "<i8"), ("memory", "<i8"), ("clock", "<i8"),
    ("reasons", "<i8"),
]  # fmt: skip
TABLES = {
    "span": ("spans", SPAN), "fold": ("folds", FOLD), "link": ("links", LINK),
    "step": ("edges", STEP), "clck": ("clocks", CLOCK), "open": ("open", OPEN),
    "coll": ("collections", COLLECTION), "sent": ("sent", SENT), "size": ("sizes", SIZE),
    "iter": ("iterations", ITERATION),
    "samp": ("samples", SAMPLE), "sbeg": ("begun", BEGUN),
    "sfol": ("sample_folds", SAMPLE_FOLD), "note": ("notes", NOTE),
    "attr": ("attributes", ATTRIBUTE),
    "thrd": ("threads", THREAD), "slpt": ("sleeps", SLEPT), "used": ("usage", USAGE),
    "card": ("cards", CARD),
}  # fmt: skip
"""For each kind of block: the attribute of `Ledger` that holds its rows, and their layout."""
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "str": (str,), "str | None": (str, NoneType)}
_HEADER = {
    key: _TYPES[kind.__forward_arg__] for key, kind in written.Header.__annotations__.items()
}
_PLACE: dict[str, tuple[type, ...]] = {
    "id": (int,), "parent": (int,), "key": (str,), "waits_for": (str, NoneType),
}  # fmt: skip
_TRACK: dict[str, tuple[type, ...]] = {
    "name": (str,), "thread": (int,), "native": (int, NoneType), "task": (bool,),
}  # fmt: skip
_WORD: dict[str, tuple[type, ...]] = {"id": (int,), "name": (str,)}
_EVENT: dict[str, tuple[type, ...]] = {"event": (str,), "time": (int,)}
_CLOCK_EVENT: dict[str, tuple[type, ...]] = {"at": (int,), "offset": (int,), "bound": (int,)}
_SYNC_EVENT: dict[str, tuple[type, ...]] = {"entered": (int,), "left": (int,)}
"""Keys and types of the JSON in a ledger."""
_TIMES = {"time", *_CLOCK_EVENT, *_SYNC_EVENT}
"""The JSON keys whose values are times, or differences of times."""
_MOMENTS = {"start", "end", "time", "monotonic"}
"""The columns whose values are times on the process's own clock."""
WAITS, RELEASES, MEETS = range(3)
"""The roles of links; see `gpuprof_timing.recording.ROLES`."""


@attrs.frozen
class Place:
    """A place in a process's timing tree.

    Args:
        key: the name of the scopes at this place; empty for place 0, which is outside all scopes.
        parent: the number of the enclosing place; 0 at the top.
        depth: the number of places from the top to this one, including it; 0 for place 0.
        waits_for: the group for whose work the scopes here wait, if that is known.
        around: the enclosing place; ``None`` for place 0.
    """

    key: str
    parent: int
    depth: int
    waits_for: str | None = None
    around: Place | None = attrs.field(default=None, repr=False, eq=False)

    @property
    def path(self) -> str:
        """The names of the enclosing scopes and its own, joined by ``/``."""
        keys, place = [], self
        while place.around is not None:
            keys.append(place.key)
            place = place.around
        return "/".join(reversed(keys))


@attrs.frozen
class Track:
    """A thread, or a task in a thread's event loop.

    Args:
        thread: Python's id of the thread.
        native: the system's id of the thread; ``None`` if the thread ended before its id was read.
    """

    name: str
    thread: int
    native: int | None
    task: bool


@attrs.frozen
class Step:
    """A step, with its times in nanoseconds. `end` is ``None`` if the step did not end."""

    number: int
    start: int
    end: int | None


@attrs.define(eq=False)
class Ledger:
    """What one process recorded.

    All times are nanoseconds on the process's monotonic clock. `align` corrects them for the drift
    between that clock and the run's, so that one `offset` applies to all times except those in
    `header`, which are not corrected.

    Args:
        places: the places by number; number 0 is outside all places.
        tracks: the tracks by number; number 0 is unknown.
        spans: single calls: a structured array of `SPAN`, on each track in order of their ends.
        folds: groups of calls of which only totals are known: an array of `FOLD`.
        links: keys of spans: an array of `LINK`.
        edges: beginnings and ends of steps: an array of `STEP`, in order of time.
        clocks: readings of the monotonic and the wall clock: an array of `CLOCK`.
        open: calls that had not ended at the ledger's end: an array of `OPEN`.
        sent: calls that the process sent to other processes: an array of `SENT`.
        sizes: the bytes that calls handled: an array of `SIZE`.
        iterations: the first collective in each iteration of a loop: an array of `ITERATION`, for
            each loop in order of time. ``loop`` is that of an event ``loop``.
        collections: long garbage collections, which stop the process: an array of `COLLECTION`.
        samples: phases of samples that ended: an array of `SAMPLE`. ``sample`` is a key of
            `sample_ids`, ``phase`` a position in `words`, and ``weight`` how many phases the row
            stands for.
        begun: phases of samples that went on for a second or longer, whether or not they ended: an
            array of `BEGUN`.
        sample_folds: phases of samples of which only totals are known: an array of `SAMPLE_FOLD`.
        notes: numbers noted of phases and folds: an array of `NOTE`. ``number`` is that of the
            phase or fold, ``name`` a position in `words`.
        attributes: attributes of steps: an array of `ATTRIBUTE`, ``name`` a position in `words`.
        words: the names of phases, notes and attributes; the first one is empty.
        sample_ids: the ids of samples by key.
        threads: how long Python's threads had run, and how long they had been ready to run: an
            array of `THREAD`, for each in order of time.
        sleeps: how long the main thread had slept and waited for nobody: an array of `SLEPT`, in
            order of time.
        cards: what the process's GPUs did: an array of `CARD`. ``card`` is that of an event
            ``card``.
        usage: what the process used, and its machine's load: an array of `USAGE`, in order of time.
        events: everything else, each with ``event`` and ``time``.
        damaged: the number of bytes at the file's end that could not be read; 0 if none.
        offset: the number of nanoseconds to add to the ledger's times to get the run's times. These
            are nanoseconds since the epoch on the driver's node or, without a driver, on the first
            node.
        bound: the largest error of the run's times in nanoseconds; ``None`` if unknown. In a
            comparison of two processes, their bounds add up.
        line: the drift of the process's clock; ``None`` if it needs no correction.
    """

    path: Path
    header: written.Header
    places: list[Place]
    tracks: list[Track]
    spans: Rows
    folds: Rows
    links: Rows
    edges: Rows
    clocks: Rows
    open: Rows
    iterations: Rows
    collections: Rows
    sent: Rows
    sizes: Rows
    samples: Rows
    begun: Rows
    sample_folds: Rows
    notes: Rows
    attributes: Rows
    words: list[str]
    sample_ids: dict[int, str]
    threads: Rows
    usage: Rows
    cards: Rows
    sleeps: Rows
    events: list[dict[str, Any]]
    size: int = 0
    damaged: int = 0
    offset: int = 0
    bound: int | None = None
    line: _Line | None = None

    @property
    def name(self) -> str:
        """The process's name, such as ``ActorGroup-0``."""
        return self.header["name"]

    @property
    def marker(self) -> int | None:
        """The number of the thread that marks the steps; ``None`` if that is not known."""
        for event in self.events:
            track = event.get("track") if event["event"] == written.MARKS_STEPS else None
            if isinstance(track, int) and 0 < track < len(self.tracks):
                return track
        return None

    @property
    def main(self) -> Rows:
        """The rows of `threads` that are the main thread's."""
        import numpy as np

        # Linux gives a process the number of its first thread
        pid = self.header["pid"]
        tracks = [
            number
            for number, track in enumerate(self.tracks)
            if track.native == pid and not track.task
        ]
        return self.threads[np.isin(self.threads["track"], tracks)]

    @property
    def ended(self) -> bool:
        """Whether the process closed its ledger; a killed one did not."""
        return any(event["event"] == "end" for event in self.events)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the process, which closed its ledger then."""
        return any(event["event"] == "end" and "interrupted" in event for event in self.events)

    @property
    def first(self) -> int:
        """The first moment that the ledger knows of."""
        return int(self.spans["start"].min(initial=self.header["monotonic"]))

    @property
    def last(self) -> int:
        """The last moment that the ledger knows of."""
        beginning = self.header["monotonic"]
        moments: list[int] = [
            int(self.spans["end"].max(initial=beginning)),
            int(self.folds["end"].max(initial=beginning)),
            int(self.clocks["monotonic"].max(initial=beginning)),
            int(self.edges["time"].max(initial=beginning)),
            int(self.samples["end"].max(initial=beginning)),
            *(event["time"] for event in self.events),
        ]
        return max(moments)

    def steps(self) -> list[Step]:
        """The steps that this process marked, in the order in which they began.

        If steps are nested, only the outermost counts. A step that did not end contains no others:
        the steps that began after it are separate steps.
        """
        beginnings: list[tuple[int, int]] = []
        running: list[int] = []
        numbers: Counter[int] = Counter()  # how many running steps have each number
        # by the position of a step's beginning: when it ended, and how many steps had begun by then
        ends: dict[int, tuple[int | None, int]] = {}
        for number, time, begins in self.edges.tolist():
            if begins:
                running.append(len(beginnings))
                beginnings.append((number, time))
                numbers[number] += 1
            elif numbers[number]:
                while True:
                    inner = running.pop()
                    numbers[beginnings[inner][0]] -= 1
                    if beginnings[inner][0] == number:
                        break
                ends[inner] = time, len(beginnings)
        steps, position = [], 0
        while position < len(beginnings):
            number, start = beginnings[position]
            end, after = ends.get(position, (None, position + 1))
            steps.append(Step(number, start, end))
            position = after
        return steps


def read(path: Path) -> Ledger:
    """Read a ledger, which may be incomplete or still be growing."""
    reader = Reader(path)
    reader.read()
    return reader.ledger()


class Reader:
    """Reads a ledger that is growing, again and again, but each part of it only once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._header: written.Header | None = None
        self._parts: dict[str, list[Any]] = {kind: [] for kind in TABLES}
        self._places, self._tracks = [Place("", 0, 0)], [Track("", 0, None, False)]
        self._words, self._sample_ids = [""], dict[int, str]()
        self._events: list[dict[str, Any]] = []
        self._good = self._size = 0

    def read(self) -> None:
        """Read what the file has had since the last call."""
        try:
            with open(open_regular(self.path), "rb") as file:
                self._size = os.fstat(file.fileno()).st_size
                header, blocks = blocks_of(self.path, file)
                self._header = self._header or header
                self._good = max(self._good, file.tell())
                file.seek(self._good)
                for kind, content in blocks:
                    self._add(kind, content)
                    self._good = file.tell()
        except (OSError, UnsafeFile) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise OutputError(f"{self.path}: ignored: {reason}") from None
        except (ValueError, LookupError, TypeError) as error:
            raise OutputError(f"{self.path}: ignored: damaged: {error}") from None

    def _add(self, kind: str, content: bytes) -> None:
        import numpy as np

        if kind in TABLES:
            rows = np.frombuffer(content, np.dtype(TABLES[kind][1]))
            _check(rows, len(self._places), len(self._tracks), len(self._words))
            if kind == "open":
                self._parts[kind] = [rows]
            else:
                self._parts[kind].append(rows)
        elif kind == "plac":
            _add_places(self._places, entries(content, _PLACE))
        elif kind == "trak":
            self._tracks += [
                Track(entry["name"], entry["thread"], entry["native"], entry["task"])
                for entry in entries(content, _TRACK)
            ]
        elif kind == "word":
            self._words += [entry["name"] for entry in entries(content, _WORD)]
        elif kind == "snam":
            self._sample_ids.update((key_of(text), text) for text in texts(content))
        elif kind == "evnt":
            self._events += entries(content, _EVENT)

    def forget(self, before: int) -> None:
        """Drop the rows of what ended before a time, in nanoseconds of the process's own clock.

        Keeps events and the readings of clocks, which are few.
        """
        for kind, (_, layout) in TABLES.items():
            moments = [name for name, _ in layout if name in _MOMENTS]
            if moments and kind not in ("clck", "open"):
                rows = (part[part[moments[-1]] >= before] for part in self._parts[kind])
                self._parts[kind] = [part for part in rows if len(part)]

    def ledger(self) -> Ledger:
        """What was read, without what was forgotten."""
        import numpy as np

        if self._header is None:
            raise ValueError(f"{self.path}: read it first")
        header = self._header.copy()
        for event in self._events:
            if event["event"] == written.DRIVES:
                header["role"] = "driver"
                name = event.get("name")
                if isinstance(name, str):
                    header["name"] = header["group"] = name
        tables: dict[str, Any] = {
            attribute: np.concatenate(self._parts[kind] or [np.empty(0, np.dtype(layout))])
            for kind, (attribute, layout) in TABLES.items()
        }
        # the marks of different threads may be slightly out of order
        tables["edges"] = tables["edges"][np.argsort(tables["edges"]["time"], kind="stable")]
        return Ledger(
            self.path,
            header,
            self._places,
            self._tracks,
            words=self._words,
            sample_ids=self._sample_ids,
            events=[event.copy() for event in self._events],
            size=self._good,
            damaged=self._size - self._good,
            offset=header["wall"] - header["monotonic"],
            **tables,
        )


def blocks_of(path: Path, file: BinaryIO) -> tuple[written.Header, Iterator[tuple[str, bytes]]]:
    """The header of an open ledger or file of stacks, and each whole block's kind and content."""
    end = _first_hole(file.fileno(), os.fstat(file.fileno()).st_size)
    return _header(path, file.readline(_LARGEST_LINE)), _blocks(file, end)


def _header(path: Path, line: bytes) -> written.Header:
    try:
        header = parse_json(line)
    except UnsafeFile:
        header = None
    if not isinstance(header, dict) or header.get("format") != written.FORMAT:
        raise OutputError(f"{path}: ignored: not a ledger")
    if header.get("version") != written.VERSION:
        raise OutputError(
            f"{path}: ignored: version {header.get('version')!r}; expected {written.VERSION}. "
            "Use one release of gpuprof for a whole run"
        )
    checksum = header.pop("checksum", None)
    if checksum != zlib.crc32(json.dumps(header).encode()) or not _fits(header, _HEADER):
        raise OutputError(f"{path}: ignored: damaged: its first line is not what was written")
    if abs(header["monotonic"]) >= MOST or not 0 <= header["wall"] < _LATEST:
        raise OutputError(f"{path}: ignored: damaged: it began at a time that no clock shows")
    return header  # type: ignore[return-value, unused-ignore]


def entries(content: bytes, keys: Mapping[str, tuple[type, ...]]) -> list[dict[str, Any]]:
    """Parse a JSON block: a list of entries.

    Args:
        keys: the keys that each entry must have, with the valid types of their values.
    """
    values = parse_json(content)
    if not isinstance(values, list) or not all(
        isinstance(entry, dict) and _fits(entry, keys) for entry in values
    ):
        raise ValueError(f"expected mappings with {', '.join(keys)}")
    return values


def texts(content: bytes) -> list[str]:
    """Parse a JSON block: a list of texts."""
    values = parse_json(content)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("expected texts")
    return values


def _fits(data: Mapping[str, object], keys: Mapping[str, tuple[type, ...]]) -> bool:
    return all(
        type(value := data.get(key)) in types
        and (not isinstance(value, int) or abs(value) < (MOST if key in _TIMES else 2**63))
        for key, types in keys.items()
    )


def _first_hole(file: int, size: int) -> int:
    """The position of the first hole in an open file; without a hole, the file's end.

    Nothing after a hole is read: processes write no holes, and a hole that takes no disk space may
    be too large for memory.
    """
    try:
        return min(size, os.lseek(file, 0, os.SEEK_HOLE))
    except OSError:  # an empty file, or a file system without holes
        return size
    finally:
        os.lseek(file, 0, os.SEEK_SET)


def _blocks(file: BinaryIO, end: int) -> Iterator[tuple[str, bytes]]:
    """The kind and content of each block before `end`, up to the first damaged block."""
    while len(front := file.read(BLOCK.size)) == BLOCK.size:
        kind, size, checksum = BLOCK.unpack(front)
        if size > _LARGEST_BLOCK or file.tell() + size > end:
            return
        content = file.read(size)
        if len(content) < size or zlib.crc32(content, zlib.crc32(kind)) != checksum:
            return
        yield kind.decode("ascii", "replace"), content


def _add_places(places: list[Place], new: Sequence[dict[str, Any]]) -> None:
    for entry in new:
        if entry["id"] != len(places) or not 0 <= entry["parent"] < len(places):
            raise ValueError(f"place {entry['id']} comes after place {len(places) - 1}")
        parent = places[entry["parent"]]
        depth = parent.depth + 1
        places.append(Place(entry["key"], entry["parent"], depth, entry.get("waits_for"), parent))


def _check(rows: Rows, places: int, tracks: int, words: int) -> None:
    """Reject invalid rows, so that no analysis has to expect them."""
    for name in rows.dtype.names or ():
        if name == "value":
            if not abs(rows[name]).max(initial=0.0) <= _LARGEST_VALUE:  # nor is nan
                raise ValueError("value: expected finite numbers")
            continue
        least, most = int(rows[name].min(initial=0)), int(rows[name].max(initial=0))
        low, high = _RANGES.get(name, (least, most + 1))
        if not low <= least <= most < high:
            number = least if least < low else most
            raise ValueError(f"{name}: {number}: expected {low} to {high - 1}")
        if name == "place" and len(rows) and not 0 < int(rows[name].min()) <= most < places:
            raise ValueError("a call at a place that it does not have")
        if name == "track" and most >= tracks:
            raise ValueError("a call on a track that it does not have")
        is_word = name in ("phase", "name") and len(rows)
        if is_word and not 0 < int(rows[name].min()) <= most < words:
            raise ValueError("a name that it does not have")
        if name == "end" and bool((rows["end"] < rows["start"]).any()):
            raise ValueError("a call that ends before it begins")


def paths(directory: Path) -> list[Path]:
    """The files of all ledgers of a run, by node and name."""
    files = sorted(directory.glob(f"*/*{SUFFIX}"))
    return [path for path in files if not path.parent.name.startswith(".")]


def ledgers(directory: Path) -> tuple[list[Ledger], list[str]]:
    """Read all ledgers of a run, and align their times.

    Returns:
        The ledgers, sorted by node and name, and a sentence for each that cannot be read.
    """
    readable, problems = [], []
    for path in paths(directory):
        try:
            readable.append(read(path))
        except OutputError as error:
            problems.append(str(error))
    align(readable)
    return readable, problems


def align(ledgers: Sequence[Ledger]) -> None:
    """Set each ledger's `offset` and `bound`, and correct its times for the drift of its clock.

    Ledgers with the driver's clock need no correction. Other clocks are aligned by the driver's
    measurements (events ``clock``), or else by marks at common barriers (events ``sync``), or else
    by their wall clocks, whose error is unknown. Call this only once for a ledger.
    """
    if not ledgers:
        return
    reference = min(ledgers, key=lambda ledger: ledger.header["role"] != "driver")
    base = reference.header["clock"]
    epoch = _wall_offset([member for member in ledgers if member.header["clock"] == base])
    for clock in dict.fromkeys(member.header["clock"] for member in ledgers):
        those = [member for member in ledgers if member.header["clock"] == clock]
        if clock == base:
            for member in those:
                member.offset, member.bound = epoch, 0
            continue
        measurements = _measured(ledgers, base, clock) or _synchronized(ledgers, base, clock)
        if not measurements:
            for member in those:
                member.offset, member.bound = _wall_offset(those), None
            continue
        line = _Line(measurements)
        for member in those:
            member.bound = line.bound(member.first, member.last)
            member.offset = epoch + line.offset
            member.line = line
            _straighten(member, line)


def clock_notes(ledgers: Sequence[Ledger]) -> list[str]:
    """One sentence in a list if some nodes' times cannot be compared with the others'; or none."""
    unknown = sorted({ledger.header["node"] for ledger in ledgers if ledger.bound is None})
    if not unknown:
        return []
    sentence = (
        f"{', '.join(unknown)}: the clock was not compared with the others, so its times follow "
        "the wall clock, with an unknown error; start actors with profiler.start, or call "
        "gpuprof.sync_mark"
    )
    return [sentence]


_RATE = 100e-6
"""How much the drift between two clocks may differ from its average, as a ratio. The causes are the
quartz and corrections by a time service."""
_FASTEST = 1e-3
"""The highest rate at which two clocks can drift apart, as a ratio: twice the largest correction
that Linux applies."""


class _Measured(NamedTuple):
    """A measured offset of a clock, its time on that clock, and its error, in nanoseconds."""

    at: int
    offset: int
    bound: int


class _Line:
    """The offset of a clock over time, interpolated linearly between measurements.

    Args:
        measurements: at least one.
    """

    def __init__(self, measurements: Sequence[_Measured]) -> None:
        self._points: list[_Measured] = []
        for point in _best(sorted(measurements)):
            # no clock runs backwards
            if not self._points or sum(point[:2]) > sum(self._points[-1][:2]):
                self._points.append(point)
        self.offset = self._points[0].offset
        slopes = [
            abs(later.offset - earlier.offset) / (later.at - earlier.at)
            for earlier, later in pairwise(self._points)
        ]
        self._rate = max(_RATE, *slopes) if slopes else _RATE

    def drift(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nanoseconds to add, in addition to `offset`, to each of `times` on the clock."""
        import numpy as np

        zero = self._points[0]
        return np.rint(
            np.interp(
                (times - zero.at).astype(np.float64),
                [float(point.at - zero.at) for point in self._points],
                [float(point.offset - zero.offset) for point in self._points],
            )
        ).astype(np.int64)

    def bound(self, first: int, last: int) -> int:
        """The largest error in nanoseconds at any time from `first` to `last` on the clock."""
        points = self._points
        bounds = [
            points[0].bound + self._rate * max(0, points[0].at - first),
            points[-1].bound + self._rate * max(0, last - points[-1].at),
        ]
        bounds += [
            max(earlier.bound, later.bound) + self._rate * (later.at - earlier.at) / 2
            for earlier, later in pairwise(points)
            if earlier.at <= last and later.at >= first
        ]
        return min(MOST, math.ceil(max(bounds)))


def _best(points: Sequence[_Measured]) -> list[_Measured]:
    """Drop measurements less exact than an estimate from another one, with `_RATE` as its error."""
    bounds = [float(point.bound) for point in points]
    for order in (range(1, len(points)), range(len(points) - 2, -1, -1)):
        for index in order:
            other = index - order.step
            distance = abs(points[index].at - points[other].at)
            bounds[index] = min(bounds[index], bounds[other] + _RATE * distance)
    points_to_keep = [
        point for point, least in zip(points, bounds, strict=True) if point.bound <= least
    ]
    return list({point.at: point for point in points_to_keep}.values())


def _measured(ledgers: Sequence[Ledger], base: str, clock: str) -> list[_Measured]:
    """The measurements of a clock by processes with the clock `base`, which is the driver's."""
    return [
        _Measured(event["at"] - event["offset"], event["offset"], event["bound"])
        for ledger in ledgers
        if ledger.header["clock"] == base
        for event in ledger.events
        if event["event"] == "clock"
        and event.get("clock") == clock
        and _fits(event, _CLOCK_EVENT)
        and event["bound"] >= 0
    ]


def _synchronized(ledgers: Sequence[Ledger], base: str, clock: str) -> list[_Measured]:
    """A clock's offsets, computed from barriers that its processes share with those of `base`.

    No process leaves a barrier before all have entered it.
    """
    base_marks, clock_marks = _marks(ledgers, base), _marks(ledgers, clock)
    points = []
    for key in base_marks.keys() & clock_marks.keys():
        (entered, left), (its_entered, its_left) = base_marks[key], clock_marks[key]
        least, most = entered - its_left, left - its_entered
        points.append(
            _Measured((its_entered + its_left) // 2, (least + most) // 2, (most - least + 1) // 2)
        )
    points.sort()
    consistent = all(
        abs(later.offset - earlier.offset)
        <= earlier.bound + later.bound + _FASTEST * (later.at - earlier.at)
        for earlier, later in pairwise(points)
    )
    # inconsistent offsets come from different barriers that were taken for the same
    return points if consistent and all(point.bound >= 0 for point in points) else []


def _marks(ledgers: Sequence[Ledger], clock: str) -> dict[tuple[str | None, int], tuple[int, int]]:
    """The times when the last process entered and the first process left each barrier.

    The keys are the processes' incarnation and the barrier's number.
    """
    marks: dict[tuple[str | None, int], tuple[int, int]] = {}
    for ledger in ledgers:
        if ledger.header["clock"] != clock or ledger.header["role"] == "child":
            continue
        events = [event for event in ledger.events if event["event"] == "sync"]
        for number, event in enumerate(events):
            if _fits(event, _SYNC_EVENT):
                key = ledger.header["incarnation"], number
                entered, left = marks.get(key, (event["entered"], event["left"]))
                marks[key] = max(entered, event["entered"]), min(left, event["left"])
    return marks


def _wall_offset(ledgers: Sequence[Ledger]) -> int:
    """The median offset from a monotonic clock to the wall clock, which may be set during a run."""
    walls: list[int] = [
        wall - monotonic
        for ledger in ledgers
        for monotonic, wall in [
            (ledger.header["monotonic"], ledger.header["wall"]),
            *zip(ledger.clocks["monotonic"].tolist(), ledger.clocks["wall"].tolist(), strict=True),
        ]
    ]
    return statistics.median_low(walls)


def _straighten(ledger: Ledger, line: _Line) -> None:
    import numpy as np

    for attribute, layout in TABLES.values():
        rows = getattr(ledger, attribute)
        for name in _MOMENTS.intersection(name for name, _ in layout):
            rows[name] += line.drift(rows[name])
    moments = np.array([event["time"] for event in ledger.events], np.int64)
    for event, drift in zip(ledger.events, line.drift(moments).tolist(), strict=True):
        event["time"] += drift

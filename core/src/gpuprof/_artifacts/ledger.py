"""Reads ledgers: what every process of a run did when, on one line of time.

The files are written by `gpuprof._session.ledger`; docs/explanation/ledger.md describes them.
NumPy does the work, and is imported by readers only.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from gpuprof._session import ledger as written
from gpuprof._shim.safe import UnsafeFile, open_regular
from gpuprof.errors import OutputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.void]

SUFFIX = ".ledger"
_LARGEST_LINE = 65536
_LARGEST_BLOCK = 256 * 2**20

SPAN = [("place", "<u4"), ("track", "<u4"), ("start", "<i8"), ("end", "<i8")]
FOLD = [*SPAN, ("count", "<i8"), ("busy", "<i8")]
LINK = [*SPAN, ("key", "<u8"), ("role", "<u8")]
STEP = [("number", "<i8"), ("time", "<i8"), ("begins", "<u4")]
CLOCK = [("monotonic", "<i8"), ("wall", "<i8"), ("apart", "<i8")]
OPEN = [("place", "<u4"), ("start", "<i8")]
_DTYPES = {"span": SPAN, "fold": FOLD, "link": LINK, "step": STEP, "clck": CLOCK, "open": OPEN}
WAITS, RELEASES, MEETS = range(3)
"""The roles of links; see `gpuprof_timing._spans.ROLES`."""


@attrs.frozen
class Place:
    """A place in a process's timing tree.

    Args:
        keys: the names of the scopes around it and its own, outermost first; empty for no scope.
        parent: the number of the place around it; 0 at the top.
        waits_for: the group whose work scopes here wait for, if that is known.
    """

    keys: tuple[str, ...]
    parent: int
    waits_for: str | None = None

    @property
    def path(self) -> str:
        """As people read it."""
        return "/".join(self.keys)


@attrs.frozen
class Track:
    """A thread, or a task in its event loop.

    Args:
        thread: Python's id of the thread.
        native: the system's id; ``None`` if the thread had ended before it was asked.
    """

    name: str
    thread: int
    native: int | None
    task: bool


@attrs.frozen
class Step:
    """A step, in the nanoseconds of its reader. `end` is ``None`` if it did not end."""

    number: int
    start: int
    end: int | None


@attrs.define(eq=False)
class Ledger:
    """What one process recorded. All times are nanoseconds of its monotonic clock.

    Args:
        path: of the file.
        header: its first line.
        places: by number; number 0 is no place.
        tracks: by number; number 0 is unknown.
        spans: single calls, a structured array of `SPAN`, in order of their ends per track.
        folds: calls that are known only together, of `FOLD`.
        links: keys of spans, of `LINK`.
        edges: beginnings and ends of steps, of `STEP`.
        clocks: readings of both clocks, of `CLOCK`.
        open: calls that had not ended when the ledger did, of `OPEN`.
        events: everything else, each with ``event`` and ``time``.
        damaged: bytes at the end that could not be read; 0 for a whole file.
        offset: what to add to its times for times of the run, which are nanoseconds since the
            epoch on the driver's node.
        bound: how wrong `offset` may be, in nanoseconds; ``None`` if that is not known.
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
    events: list[dict[str, Any]]
    damaged: int = 0
    offset: int = 0
    bound: int | None = None

    @property
    def name(self) -> str:
        """Of the process, as ``ActorGroup-0``."""
        return self.header["name"]

    @property
    def ended(self) -> bool:
        """Whether the process closed its ledger; a killed one did not."""
        return any(event["event"] == "end" for event in self.events)

    @property
    def last(self) -> int:
        """The last moment that the ledger knows of."""
        moments: list[int] = [
            int(self.spans["end"].max(initial=0)),
            int(self.clocks["monotonic"].max(initial=0)),
            int(self.edges["time"].max(initial=0)),
            *(event["time"] for event in self.events),
        ]
        return max(moments)

    def steps(self) -> list[Step]:
        """The steps that this process marked, in the order in which they began.

        A step inside itself is one step; of nested steps the outer one counts.
        """
        found: list[Step] = []
        running: list[tuple[int, int]] = []
        for number, time, begins in self.edges.tolist():
            if begins:
                running.append((number, time))
            elif running and any(number == each for each, _ in running):
                while running and running[-1][0] != number:
                    running.pop()
                start = running.pop()[1]
                if not running:
                    found.append(Step(number, start, time))
        # one that did not end, at the end of the ledger or before the next one
        found += [Step(number, start, None) for number, start in running[:1]]
        return sorted(found, key=lambda step: step.start)


def read(path: Path) -> Ledger:
    """Read a ledger, which may still be written, or end in the middle.

    Raises:
        OutputError: it is no ledger, of another version, or cannot be read.
    """
    import numpy as np

    parts: dict[str, list[Any]] = {kind: [] for kind in _DTYPES}
    places, tracks = [Place((), 0)], [Track("", 0, None, False)]
    events: list[dict[str, Any]] = []
    try:
        with open(open_regular(path), "rb") as file:
            header = _header(path, file.readline(_LARGEST_LINE))
            size = os.fstat(file.fileno()).st_size
            good = file.tell()
            for kind, content in _blocks(file):
                good = file.tell()
                if kind in _DTYPES:
                    rows = np.frombuffer(content, np.dtype(_DTYPES[kind]))
                    if kind == "open":
                        parts[kind] = [rows]
                    else:
                        parts[kind].append(rows)
                elif kind == "plac":
                    _add_places(places, json.loads(content))
                elif kind == "trak":
                    tracks += [
                        Track(each["name"], each["thread"], each["native"], each["task"])
                        for each in json.loads(content)
                    ]
                elif kind == "evnt":
                    events += json.loads(content)
    except (OSError, UnsafeFile) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OutputError(f"{path}: ignored: {reason}") from None
    except (ValueError, LookupError, TypeError) as error:
        raise OutputError(f"{path}: ignored: damaged: {error}") from None
    arrays = {
        kind: np.concatenate(rows) if rows else np.empty(0, np.dtype(_DTYPES[kind]))
        for kind, rows in parts.items()
    }
    for kind in ("span", "fold", "link"):
        if arrays[kind].size and int(arrays[kind]["place"].max()) >= len(places):
            raise OutputError(f"{path}: ignored: damaged: a call at a place that it does not have")
        if arrays[kind].size and int(arrays[kind]["track"].max()) >= len(tracks):
            raise OutputError(f"{path}: ignored: damaged: a call on a track that it does not have")
    made = Ledger(
        path,
        header,
        places,
        tracks,
        arrays["span"],
        arrays["fold"],
        arrays["link"],
        arrays["step"],
        arrays["clck"],
        arrays["open"],
        events,
        size - good,
    )
    made.offset = header["wall"] - header["monotonic"]
    return made


def _header(path: Path, line: bytes) -> written.Header:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != written.FORMAT:
        raise OutputError(f"{path}: ignored: not a ledger")
    if header.get("version") != written.VERSION:
        raise OutputError(
            f"{path}: ignored: version {header.get('version')!r}; expected {written.VERSION}. "
            "Use one release of gpuprof for a whole run"
        )
    missing = written.Header.__annotations__.keys() - header.keys()
    if missing:
        lacking = ", ".join(sorted(missing))
        raise OutputError(f"{path}: ignored: damaged: its header lacks {lacking}")
    return header  # type: ignore[return-value, unused-ignore]


def _blocks(file: Any) -> Iterator[tuple[str, bytes]]:
    """The whole blocks; the first damaged one ends them."""
    while len(front := file.read(written.BLOCK.size)) == written.BLOCK.size:
        kind, size, checksum = written.BLOCK.unpack(front)
        content = file.read(size) if size <= _LARGEST_BLOCK else b""
        if len(content) < size or zlib.crc32(content) != checksum:
            return
        yield kind.decode("ascii", "replace"), content


def _add_places(places: list[Place], new: Sequence[dict[str, Any]]) -> None:
    for each in new:
        if each["id"] != len(places):
            raise ValueError(f"place {each['id']} comes after place {len(places) - 1}")
        keys = (*places[each["parent"]].keys, each["key"])
        places.append(Place(keys, each["parent"], each.get("waits_for")))


def ledgers(directory: Path) -> tuple[list[Ledger], list[str]]:
    """Read all ledgers of a run, and put them on one line of time.

    Returns:
        The ledgers by node and name, and a sentence for each that cannot be read.
    """
    found, problems = [], []
    for path in sorted(directory.glob(f"*/*{SUFFIX}")):
        if path.parent.name.startswith("."):
            continue
        try:
            found.append(read(path))
        except OutputError as error:
            problems.append(str(error))
    align(found)
    return found, problems


def align(found: Sequence[Ledger]) -> None:
    """Set each ledger's `offset` and `bound`.

    Processes with the same clock differ by nothing. The others follow the driver's measurements
    (events ``clock``), or their wall clocks, whose error nobody knows.
    """
    # TODO: measurements of the driver
    clocks: dict[str, tuple[int, int | None]] = {}
    for each in sorted(found, key=lambda ledger: ledger.header["role"] != "driver"):
        clock = each.header["clock"]
        if clock not in clocks:
            wall = each.header["wall"] - each.header["monotonic"]
            clocks[clock] = wall, 0 if not clocks else None
        each.offset, each.bound = clocks[clock]

"""One time line over all processes of a run, as a trace for ui.perfetto.dev."""

from __future__ import annotations

import gzip
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from gpuprof._analysis.reading import found_rounds
from gpuprof._analysis.run import Step as Round
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts.ledger import MEETS, RELEASES, WAITS, Ledger, Step
from gpuprof._artifacts.places import Place
from gpuprof._report.clock_check import clock_shift
from gpuprof._report.perfetto import Extra, TraceWriter
from gpuprof._report.recorded import Recorded, recorded
from gpuprof._shim.safe import replacing
from gpuprof.backend.types import RecordedTrack
from gpuprof.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from gpuprof._report.perfetto import Integers

_AGREE = 1_000_000
"""Nanoseconds by which a profiler's clock may differ from the ledger's before it is corrected."""
_RANGES = "ranges"
"""The kind of a profiler's tracks that are gpuprof's own ranges."""
_FOREVER = (0, 1 << 62)
_STEPS, _WINDOWS, _THREADS = range(3)


@attrs.define
class Timeline:
    """What was written.

    Args:
        path: the file.
        processes: how many have a ledger or a report in it.
        slices: how many it has.
        seconds: from its first to its last slice.
        notes: what a reader should know.
        problems: the files that could not be read.
    """

    path: Path
    processes: int = 0
    slices: int = 0
    seconds: float = 0.0
    notes: list[str] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)


def write(
    directory: Path,
    output: Path,
    first: int | None = None,
    last: int | None = None,
) -> Timeline:
    """Write the time line of a run.

    Args:
        directory: of the run.
        output: the file; one that is there is replaced.
        first: the first step to show; ``None`` for the whole run.
        last: the last step.

    Raises:
        ConfigError: there is nothing to show, or no such step.
        OutputError: the file cannot be written.
    """
    found, problems = ledgers.ledgers(directory)
    rounds = found_rounds(directory.name, found)
    begin, end = _interval(found, rounds, first, last)
    known = {(each.header["node"], each.name): each for each in found}

    def wanted(place: Place | None, node: str) -> bool:
        """Whether a report may hold something of the interval."""
        if place is None or not isfinite(place.opened) or not isfinite(place.closed):
            return True
        around = known.get((node, f"{place.group}-{place.rank}"))
        opened, closed = (
            _at_wall(around, round(seconds * 1e9)) for seconds in (place.opened, place.closed)
        )
        return opened <= end and closed >= begin

    reports, broken = recorded(directory, wanted)
    made = Timeline(output, notes=ledgers.clock_notes(found), problems=problems + broken)
    if not found and not reports:
        nothing = "no ledger, and no report that an installed backend can read"
        raise ConfigError([f"{directory}: nothing to show: {nothing}", *made.problems])
    try:
        with replacing(output) as packed, gzip.open(packed, "wb", compresslevel=4) as file:
            _Drawing(found, rounds, reports, begin, end, made).draw(file)
    except OSError as error:
        raise OutputError(f"{output}: cannot be written: {error.strerror}") from None
    return made


def _interval(
    found: Sequence[Ledger], rounds: Sequence[Round], first: int | None, last: int | None
) -> tuple[int, int]:
    """The run's time from the beginning of the first step to the end of the last."""
    if first is None or last is None:
        return _FOREVER
    steps = [(step.number, step.start, step.end) for step in rounds] or [
        (step.number, *_times_of(step, each, each.last))
        for each in _steppers(found)
        for step in each.steps()
    ]
    chosen = [(start, end) for number, start, end in steps if first <= number <= last]
    if not chosen:
        numbers = [number for number, _, _ in steps]
        there = (
            f"it has steps {min(numbers)} to {max(numbers)}"
            if numbers
            else "it has none, and gpuprof explain says why"
        )
        which = f"step {first}" if first == last else f"steps {first}:{last + 1}"
        raise ConfigError(f"{which}: not in this run; {there}")
    return min(start for start, _ in chosen), max(end for _, end in chosen)


def _steppers(found: Sequence[Ledger]) -> list[Ledger]:
    """The driver, if it counts the steps; else the workers that count their own."""
    drivers = [each for each in found if each.header["role"] == "driver" and len(each.edges)]
    return drivers or [each for each in found if len(each.edges)]


def _at_wall(each: Ledger | None, wall: int) -> int:
    """The run's time at a time of a process's wall clock. Both in nanoseconds."""
    if each is None:
        return wall
    readings = each.clocks
    if not len(readings):
        return wall - each.header["wall"] + each.header["monotonic"] + each.offset
    nearest = readings[np.abs(readings["wall"] - wall).argmin()]
    return wall - int(nearest["wall"]) + int(nearest["monotonic"]) + each.offset


class _Drawing:
    """Draws the tracks: steps, nodes, processes, threads."""

    def __init__(
        self,
        found: Sequence[Ledger],
        rounds: Sequence[Round],
        reports: Sequence[Recorded],
        begin: int,
        end: int,
        made: Timeline,
    ) -> None:
        self._found = found
        self._rounds = rounds
        self._begin, self._end = begin, end
        self._made = made
        self._recorded = reports
        self._arrows = _arrows(found, begin, end)
        self._earliest, self._latest = _FOREVER[::-1]

    def draw(self, file: Any) -> None:
        self._writer = TraceWriter(file)
        drivers = [each for each in self._found if each.header["role"] == "driver"]
        for driver in () if self._rounds else drivers:
            self._steps("steps", driver, 0, 0)
        rounds: list[_Row] = [
            (f"step {step.number}", step.start, step.end, {}) for step in self._rounds
        ]
        self._rows("steps", 0, "step", rounds, 0)
        nodes = {each.header["node"] for each in drivers}
        others = {each.header["node"] for each in self._found} | {
            each.node for each in self._recorded
        }
        for rank, node in enumerate((*sorted(nodes), *sorted(others - nodes)), 1):
            self._node(node, rank)
        if self._writer.left:
            self._made.notes.append(
                f"{self._writer.left:,} slices are left out: too many others overlap them"
            )
        self._made.seconds = max(0, self._latest - self._earliest) / 1e9

    def _node(self, node: str, rank: int) -> None:
        group = self._writer.track(node, 0, rank)
        here = sorted(
            (each for each in self._found if each.header["node"] == node), key=_order_of_process
        )
        reports: dict[int, list[Recorded]] = defaultdict(list)
        orphans: dict[str, list[Recorded]] = defaultdict(list)
        for report in self._recorded:
            if report.node == node:
                owner = _owner(report, here)
                if owner is None:
                    orphans[report.worker].append(report)
                else:
                    reports[id(owner)].append(report)
        for position, each in enumerate(here):
            self._process(each, group, position, reports[id(each)])
        for position, name in enumerate(sorted(orphans), len(here)):
            self._made.processes += 1
            track = self._writer.track(name, group, position)
            self._reports(orphans[name], None, track)

    def _process(self, each: Ledger, group: int, rank: int, reports: Sequence[Recorded]) -> None:
        self._made.processes += 1
        title = each.name
        starts = {
            other.header["incarnation"]
            for other in self._found
            if (other.name, other.header["node"]) == (each.name, each.header["node"])
        }
        if len(starts) > 1:
            title += f" (start {each.header['incarnation']})"
        track = self._writer.track(title, group, rank, _about(each))
        if each.header["role"] != "driver":
            self._steps("steps", each, track, _STEPS)
        self._windows(each, track)
        self._spans(each, track)
        self._folds(each, track)
        self._unfinished(each, track)
        self._collections(each, track)
        if each.damaged:
            self._made.notes.append(
                f"{each.path}: its last {each.damaged} bytes are damaged and left out"
            )
        self._reports(reports, each, track)

    # What a process recorded of itself

    def _steps(self, title: str, each: Ledger, parent: int, rank: int) -> None:
        last = each.last
        self._rows(
            title,
            parent,
            "step",
            [(f"step {step.number}", *_times_of(step, each, last), {}) for step in each.steps()],
            rank,
        )

    def _windows(self, each: Ledger, parent: int) -> None:
        windows: list[_Row] = []
        inside: list[_Row] = []
        begun: dict[str, int] = {}
        since: dict[str, int] = {}
        for event in each.events:
            if event["event"] != "window":
                continue
            now = event["time"] + each.offset
            label, state = str(event.get("label")), event.get("state")
            if state == "opening":
                begun[label] = now
            elif state == "open":
                inside.append(("opening", since.get(label, now), now, {}))
            elif state in ("closed", "failed"):
                inside.append(("closing", since.get(label, now), now, {}))
                windows.append((f"window {label}", begun.pop(label, now), now, {}))
            since[label] = now
        last = each.last + each.offset
        for label, start in begun.items():
            windows.append((f"window {label} (not closed)", start, last, {}))
        self._rows("windows", parent, "window", [*windows, *inside], _WINDOWS)
        for event in each.events:
            if event["event"] != "thinned":
                continue
            now = event["time"] + each.offset
            if self._begin <= now <= self._end:
                said = f"only sums from level {event.get('depth')} on: {event.get('why')}"
                self._writer.instant(said, parent, "ledger", now, _WINDOWS)

    def _spans(self, each: Ledger, parent: int) -> None:
        names = np.array(
            [self._writer.name(_key(each, place)) for place in range(len(each.places))]
        )
        depths = np.array([place.depth for place in each.places])
        arrows = self._arrows.get(id(each), {})
        linked = np.fromiter(arrows, np.int64)
        for track, rows in self._by_track(each, each.spans):
            places = each.spans["place"][rows]
            special = np.flatnonzero(np.isin(rows, linked)).tolist()
            self._slices(
                _title(each, track),
                parent,
                "scope",
                names[places],
                each.spans["start"][rows] + each.offset,
                each.spans["end"][rows] + each.offset,
                _THREADS + 2 * track,
                {position: arrows[int(rows[position])] for position in special},
                depths[places],
                _shared_row(each, track, "scopes"),
            )

    def _folds(self, each: Ledger, parent: int) -> None:
        for track, rows in self._by_track(each, each.folds):
            made: list[_Row] = []
            for place, _, start, end, count, busy in each.folds[rows].tolist():
                name = f"{_key(each, place)} \N{MULTIPLICATION SIGN}{count}, busy {_duration(busy)}"
                about = {"calls": count, "busy seconds": busy / 1e9}
                made.append((name, start + each.offset, end + each.offset, about))
            title = f"{_title(each, track)}, folded"
            row = _shared_row(each, track, "folded")
            self._rows(title, parent, "folded", made, _THREADS + 2 * track + 1, row)

    def _by_track(self, each: Ledger, rows: Any) -> Iterator[tuple[int, Integers]]:
        """The positions of a ledger's rows that lie in the interval, for each track."""
        inside = rows["end"] >= self._begin - each.offset
        shown = np.flatnonzero(inside & (rows["start"] <= self._end - each.offset))
        tracks = rows["track"][shown]
        for track in np.unique(tracks).tolist():
            yield track, shown[tracks == track]

    def _unfinished(self, each: Ledger, parent: int) -> None:
        """The scopes that were open when the ledger ended."""
        last = each.last
        rows: list[_Row] = []
        spans = each.spans[np.isin(each.spans["place"], each.open["place"])]
        ended = set(zip(spans["place"].tolist(), spans["start"].tolist(), strict=True))
        for place, start in each.open.tolist():
            if (place, start) not in ended:  # else only the end is newer
                name = f"{_key(each, place)} (unfinished)"
                rows.append((name, start + each.offset, last + each.offset, {}))
        self._rows("unfinished", parent, "unfinished", rows, _THREADS + 2 * len(each.tracks))

    def _collections(self, each: Ledger, parent: int) -> None:
        """Where the garbage collector stopped the process."""
        rows: list[_Row] = [
            (f"generation {generation}", start + each.offset, end + each.offset, {})
            for generation, start, end in each.collections.tolist()
        ]
        self._rows("garbage collection", parent, "collection", rows, _WINDOWS)

    # What a profiler recorded

    def _reports(self, reports: Sequence[Recorded], each: Ledger | None, parent: int) -> None:
        """Draw reports of a worker: what one thread or stream did has one row."""
        found: dict[tuple[Any, ...], list[tuple[RecordedTrack, int]]] = defaultdict(list)
        for report in reports:
            zero = 0
            if each is not None:
                # the profiler has the wall clock; from where it begins, both go on alike
                first = min(
                    (track.spans[0][1] for track in report.tracks if track.spans), default=0
                )
                zero = _at_wall(each, first) - first
                zero += self._checked(report, each, zero)
            for track in report.tracks:
                found[_order_of_track(track)].append((track, zero))
        base = _THREADS + 2 * (len(each.tracks) if each else 0) + 1
        groups: dict[str, int] = {}
        for rank, key in enumerate(sorted(found), base):
            track = found[key][0][0]
            around, title = parent, f"{_whose(track, each)}: {track.kind}"
            if track.thread and track.kind != _RANGES:  # of every thread of the process
                if track.kind not in groups:
                    groups[track.kind] = self._writer.track(track.kind, parent, rank)
                around, title = groups[track.kind], _whose(track, each)
            rows = [
                (name, start + zero, end + zero)
                for one, zero in found[key]
                for name, start, end in one.spans
                if end + zero >= self._begin and start + zero <= self._end
            ]
            names, starts, ends = zip(*rows, strict=True) if rows else ((), (), ())
            self._slices(
                title,
                around,
                track.kind,
                np.array([self._writer.name(name) for name in names], np.int64),
                np.array(starts, np.int64),
                np.array(ends, np.int64),
                rank,
            )

    def _checked(self, report: Recorded, each: Ledger, zero: int) -> int:
        """What to add to the profiler's times, so that ranges lie where their scopes are."""
        shift = clock_shift(report.tracks, each, zero)
        if shift is None or abs(shift) <= _AGREE:
            return 0
        name = os.path.basename(report.file)
        behind = "behind" if shift > 0 else "ahead of"
        note = f"{name}: the profiler's clock is {abs(shift) / 1e6:.3f} ms {behind} the ledger's"
        self._made.notes.append(f"{note}; shown by the ledger's")
        return shift

    # Slices

    def _rows(
        self,
        title: str,
        parent: int,
        category: str,
        rows: Iterable[_Row],
        rank: int,
        shared_row: str | None = None,
    ) -> None:
        kept = [row for row in rows if row[2] >= self._begin and row[1] <= self._end]
        if not kept:
            return
        self._slices(
            title,
            parent,
            category,
            np.array([0] * len(kept)),
            np.array([start for _, start, _, _ in kept]),
            np.array([end for _, _, end, _ in kept]),
            rank,
            {row: Extra(name, about) for row, (name, _, _, about) in enumerate(kept)},
            row=shared_row,
        )

    def _slices(
        self,
        title: str,
        parent: int,
        category: str,
        names: Integers,
        starts: Integers,
        ends: Integers,
        rank: int,
        extras: dict[int, Extra] | None = None,
        depths: Integers | None = None,
        row: str | None = None,
    ) -> None:
        """Draw slices, cut where the interval begins and ends."""
        if not len(starts):
            return
        extras = extras or {}
        cut = np.flatnonzero((starts < self._begin) | (ends > self._end))
        for position in cut.tolist():
            start, end = int(starts[position]), int(ends[position])
            about = extras.setdefault(position, Extra()).about
            about["whole seconds"] = (end - start) / 1e9
            about["began before, seconds"] = max(0, self._begin - start) / 1e9
        starts, ends = np.maximum(starts, self._begin), np.minimum(ends, self._end)
        self._earliest = min(self._earliest, int(starts.min()))
        self._latest = max(self._latest, int(ends.max()))
        self._made.slices += len(starts)
        self._writer.slices(title, parent, category, names, starts, ends, rank, extras, depths, row)


_Row = tuple[str, int, int, dict[str, "str | int | float"]]
"""A slice's name, start, end, and what is shown with it."""


def _times_of(step: Step, each: Ledger, last: int) -> tuple[int, int]:
    return step.start + each.offset, (last if step.end is None else step.end) + each.offset


def _order_of_process(each: Ledger) -> tuple[Any, ...]:
    header = each.header
    start = header["incarnation"] or ""
    return (
        header["role"] != "driver",
        header["group"],
        header["rank"],
        header["role"] == "child",
        len(start),
        start,
        header["monotonic"],
    )


def _owner(report: Recorded, here: Sequence[Ledger]) -> Ledger | None:
    """The start of a worker that a report is of: that of a process in it, else the last one."""
    starts = [
        each
        for each in here
        if each.header["role"] != "child"
        and report.worker == f"{each.header['group']}-{each.header['rank']}"
    ]
    processes = {track.process for track in report.tracks}
    found = [each for each in starts if each.header["pid"] in processes] or starts
    return found[-1] if found else None


def _order_of_track(track: RecordedTrack) -> tuple[Any, ...]:
    return (
        track.kind != _RANGES,
        bool(track.thread),
        track.kind,
        track.process,
        track.thread,
        track.name,
    )


def _about(each: Ledger) -> str:
    if each.bound is None:
        clock = "its clock's error is not known"
    else:
        clock = f"its clock is right within {_duration(each.bound)}"
    return f"process {each.header['pid']}; {clock}"


def _key(each: Ledger, place: int) -> str:
    return each.places[place].key


def _title(each: Ledger, number: int) -> str:
    track = each.tracks[number]
    return f"{track.name or 'unknown thread'}{', tasks' if track.task else ''}"


def _shared_row(each: Ledger, number: int, what: str) -> str | None:
    """The row on the screen that all tasks of a thread share; ``None`` for a thread."""
    track = each.tracks[number]
    return f"{what} of the tasks of {track.thread}" if track.task else None


def _whose(track: RecordedTrack, each: Ledger | None) -> str:
    """The thread or stream of a profiler's track."""
    if not track.thread:
        return track.name
    thread = f"thread {track.thread}" + (f" ({track.name})" if track.name else "")
    if each is None or track.process not in (0, each.header["pid"]):
        return f"process {track.process}, {thread}"
    return next((one.name for one in each.tracks if one.native == track.thread), thread)


def _duration(nanoseconds: int) -> str:
    """Such as ``1.2 s``, ``35 ms`` or ``20 µs``."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("\N{MICRO SIGN}s", 10**3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"


# Arrows


def _arrows(found: Sequence[Ledger], begin: int, end: int) -> dict[int, dict[int, Extra]]:
    """The arrows from what releases to what waits, by the ledger's `id` and the span's position."""
    links: dict[int, list[_End]] = defaultdict(list)
    for each in found:
        rows = each.links
        if not len(rows):
            continue
        starts, ends = rows["start"] + each.offset, rows["end"] + each.offset
        for row in np.flatnonzero((ends >= begin) & (starts <= end)).tolist():
            place, track, _, _, key, role = rows[row].tolist()
            links[key].append(_End(each, (place, track), int(starts[row]), int(ends[row]), role))
    made: dict[int, dict[int, Extra]] = defaultdict(dict)
    positions: dict[int, dict[tuple[int, int, int, int], int]] = {}
    number = 0

    def extra_of(end_: _End) -> Extra | None:
        each = end_.ledger
        if id(each) not in positions:
            positions[id(each)] = _positions(each)
        position = positions[id(each)].get(
            (*end_.where, end_.start - each.offset, end_.end - each.offset)
        )
        return None if position is None else made[id(each)].setdefault(position, Extra())

    for ends_of_key in links.values():
        for source, at, target in _pairs(ends_of_key):
            if not (begin <= at < target.end <= end):
                continue  # an arrow that goes back in time: the clocks differ by more than it shows
            one, other = extra_of(source), extra_of(target)
            if one is None or other is None or one is other:
                continue
            number += 1
            mark = one.end if at == source.end else one.begin
            mark.leaves[number] = target.ledger.name
            other.end.arrives[number] = source.ledger.name
    return made


@attrs.frozen(eq=False)
class _End:
    """One end of arrows: a span with a key. Times are the run's."""

    ledger: Ledger
    where: tuple[int, int]
    start: int
    end: int
    role: int


def _pairs(ends: Sequence[_End]) -> Iterable[tuple[_End, int, _End]]:
    """Which span lets which go on, and when."""
    released = sorted((each for each in ends if each.role == RELEASES), key=lambda each: each.end)
    ended = [each.end for each in released]
    for each in ends:
        if each.role == WAITS and released:
            # a task that was tried again has several; the one that counts ended last before
            before = bisect_left(ended, each.end)
            source = released[max(0, before - 1)]
            yield source, source.end if before else source.start, each
    meeting: list[_End] = []
    over = 0
    for each in sorted((each for each in ends if each.role == MEETS), key=lambda each: each.start):
        if meeting and each.start > over:  # the key has come again
            yield from _meeting(meeting)
            meeting = []
        over = min(over, each.end) if meeting else each.end
        meeting.append(each)
    yield from _meeting(meeting)


def _meeting(meeting: Sequence[_End]) -> Iterable[tuple[_End, int, _End]]:
    """The last that has begun lets all others go on."""
    for each in meeting[:-1]:
        yield meeting[-1], meeting[-1].start, each


def _positions(each: Ledger) -> dict[tuple[int, int, int, int], int]:
    """Where the spans with links stand among the spans."""
    places = np.unique(each.links["place"])
    rows = np.flatnonzero(np.isin(each.spans["place"], places))
    return dict(zip(each.spans[rows].tolist(), rows.tolist(), strict=True))

"""Writes one timeline of all processes of a run, as a trace for ui.perfetto.dev."""

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
from gpuprof._analysis.run import working_track
from gpuprof._analysis.samples import Samples, samples_of, tail
from gpuprof._analysis.stacks import is_idle, numbered
from gpuprof._artifacts import stacks as artifacts
from gpuprof._artifacts.ledger import MEETS, RELEASES, WAITS, Ledger, Step, clock_notes
from gpuprof._artifacts.ledger import ledgers as read_ledgers
from gpuprof._artifacts.places import Place
from gpuprof._report.clock_check import clock_shift
from gpuprof._report.perfetto import Extra, TraceWriter
from gpuprof._report.recorded import Recorded, recorded
from gpuprof._report.stacks import chart
from gpuprof._report.words import ordinal
from gpuprof._session.cards import FOUND
from gpuprof._shim.safe import replacing
from gpuprof.backend.types import RecordedTrack
from gpuprof.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from gpuprof._report.perfetto import Integers

_AGREE = 1_000_000
"""Nanoseconds that a profiler's clock may differ from the ledger's before gpuprof corrects it."""
_RANGES = "ranges"
"""The kind of a profiler's tracks for gpuprof's own ranges."""
_FOREVER = (0, 1 << 62)
_STEPS, _WINDOWS, _USAGE, _THREADS = range(4)
_OF_THREAD = 3
"""Tracks of a thread: its scopes, those that the ledger has only as a sum, and its stacks."""
_MOST_READINGS = 500
"""About the most points of a curve."""
_MOST_SAMPLED = 200_000
"""The most slices of sampled stacks; the longest of each process are kept."""
_MOST_SAMPLE_ROWS = 30
"""The most rows of samples."""
_FEWEST_SAMPLED = 500
"""The number of such slices that each process may have, even if there are many processes."""


@attrs.define
class Timeline:
    """A timeline file.

    Args:
        processes: the number of processes with a ledger or a report in the timeline.
        seconds: the time from the first to the last slice.
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
    """Write the timeline of a run.

    Args:
        first: the first step to show; ``None`` for the whole run.
    """
    ledgers, problems = read_ledgers(directory)
    rounds = found_rounds(directory.name, ledgers)
    begin, end = _interval(ledgers, rounds, first, last)
    by_worker = {(ledger.header["node"], ledger.name): ledger for ledger in ledgers}

    def wanted(place: Place | None, node: str) -> bool:
        """Whether a report may contain a part of the interval."""
        if place is None or not isfinite(place.opened) or not isfinite(place.closed):
            return True
        ledger_of_worker = by_worker.get((node, f"{place.group}-{place.rank}"))
        first_moment, last_moment = (
            _at_wall(ledger_of_worker, round(seconds * 1e9))
            for seconds in (place.opened, place.closed)
        )
        return first_moment <= end and last_moment >= begin

    reports, broken = recorded(directory, wanted)
    timeline = Timeline(output, notes=clock_notes(ledgers), problems=problems + broken)
    if not ledgers and not reports:
        nothing = "no ledger, and no report that an installed backend can read"
        raise ConfigError([f"{directory}: nothing to show: {nothing}", *timeline.problems])
    try:
        with replacing(output) as archive, gzip.open(archive, "wb", compresslevel=4) as file:
            _Drawing(
                ledgers=ledgers,
                rounds=rounds,
                reports=reports,
                begin=begin,
                end=end,
                timeline=timeline,
            ).draw(file)
    except OSError as error:
        raise OutputError(
            f"{output}: cannot be written: {error.strerror}; name another file: --output FILE"
        ) from None
    return timeline


def _interval(
    ledgers: Sequence[Ledger], rounds: Sequence[Round], first: int | None, last: int | None
) -> tuple[int, int]:
    """The run's time from the beginning of the first step to the end of the last."""
    if first is None or last is None:
        return _FOREVER
    steps = [(step.number, step.start, step.end) for step in rounds] or [
        (step.number, *_times_of(step, ledger, ledger.last))
        for ledger in _steppers(ledgers)
        for step in ledger.steps()
    ]
    moments = [(start, end) for number, start, end in steps if first <= number <= last]
    if not moments:
        numbers = [number for number, _, _ in steps]
        range_of_run = (
            f"it has steps {min(numbers)} to {max(numbers)}"
            if numbers
            else "it has none, and gpuprof explain says why"
        )
        which = f"step {first}" if first == last else f"steps {first}:{last + 1}"
        raise ConfigError(f"{which}: not in this run; {range_of_run}")
    return min(start for start, _ in moments), max(end for _, end in moments)


def _steppers(ledgers: Sequence[Ledger]) -> list[Ledger]:
    """The driver's ledger if it counts steps, else those of workers that count their own steps."""
    drivers = [
        ledger for ledger in ledgers if ledger.header["role"] == "driver" and len(ledger.edges)
    ]
    return drivers or [ledger for ledger in ledgers if len(ledger.edges)]


def _at_wall(ledger: Ledger | None, wall: int) -> int:
    """Convert a time on a process's wall clock to the run's time. Both in nanoseconds."""
    if ledger is None:
        return wall
    readings = ledger.clocks
    if not len(readings):
        return wall - ledger.header["wall"] + ledger.header["monotonic"] + ledger.offset
    nearest = readings[np.abs(readings["wall"] - wall).argmin()]
    return wall - int(nearest["wall"]) + int(nearest["monotonic"]) + ledger.offset


class _Drawing:
    """Draws the tracks: steps, nodes, processes, threads."""

    def __init__(
        self,
        ledgers: Sequence[Ledger],
        rounds: Sequence[Round],
        reports: Sequence[Recorded],
        begin: int,
        end: int,
        timeline: Timeline,
    ) -> None:
        self._ledgers = ledgers
        self._rounds = rounds
        self._begin, self._end = begin, end
        self._timeline = timeline
        self._recorded = reports
        self._arrows = _arrows(ledgers, begin, end)
        self._earliest, self._latest = _FOREVER[::-1]
        self._too_short = 0

    def draw(self, file: Any) -> None:
        self._writer = TraceWriter(file)
        drivers = [ledger for ledger in self._ledgers if ledger.header["role"] == "driver"]
        for driver in () if self._rounds else drivers:
            self._steps("steps", driver, 0, 0)
        rounds: list[_Row] = [
            (f"step {step.number}", step.start, step.end, {}) for step in self._rounds
        ]
        self._rows(title="steps", parent=0, category="step", rows=rounds, rank=0)
        nodes = {ledger.header["node"] for ledger in drivers}
        others = {ledger.header["node"] for ledger in self._ledgers}
        others |= {report.node for report in self._recorded}
        self._samples(rank=1)
        for rank, node in enumerate((*sorted(nodes), *sorted(others - nodes)), 2):
            self._node(node, rank)
        if self._writer.left:
            self._timeline.notes.append(
                f"{self._writer.left:,} slices are left out: too many others overlap them"
            )
        if self._too_short:
            self._timeline.notes.append(
                f"{self._too_short:,} short slices of stacks are left out; "
                "fewer steps show them: see --steps"
            )
        self._timeline.seconds = max(0, self._latest - self._earliest) / 1e9

    def _node(self, node: str, rank: int) -> None:
        group = self._writer.track(node, 0, rank)
        ledgers_here = sorted(
            (ledger for ledger in self._ledgers if ledger.header["node"] == node),
            key=_order_of_process,
        )
        reports: dict[int, list[Recorded]] = defaultdict(list)
        orphans: dict[str, list[Recorded]] = defaultdict(list)
        for report in self._recorded:
            if report.node == node:
                owner = _owner(report, ledgers_here)
                if owner is None:
                    orphans[report.worker].append(report)
                else:
                    reports[id(owner)].append(report)
        for position, ledger in enumerate(ledgers_here):
            self._process(ledger, group, position, reports[id(ledger)])
        if ledgers_here:
            self._machine(max(ledgers_here, key=lambda ledger: len(ledger.usage)), group)
        for position, name in enumerate(sorted(orphans), len(ledgers_here)):
            self._timeline.processes += 1
            track = self._writer.track(name, group, position)
            self._reports(orphans[name], None, track)

    def _process(self, ledger: Ledger, group: int, rank: int, reports: Sequence[Recorded]) -> None:
        self._timeline.processes += 1
        title = ledger.name
        starts = {
            other.header["incarnation"]
            for other in self._ledgers
            if (other.name, other.header["node"]) == (ledger.name, ledger.header["node"])
        }
        if len(starts) > 1:
            title += f" (start {ledger.header['incarnation']})"
        track = self._writer.track(title, group, rank, _about(ledger))
        if ledger.header["role"] != "driver":
            self._steps("steps", ledger, track, _STEPS)
        self._windows(ledger, track)
        self._usage(ledger, track)
        self._cards(ledger, track)
        self._spans(ledger, track)
        self._folds(ledger, track)
        self._stacks(ledger, track)
        self._unfinished(ledger, track)
        self._collections(ledger, track)
        if ledger.damaged:
            self._timeline.notes.append(
                f"{ledger.path}: its last {ledger.damaged} bytes are damaged and left out"
            )
        self._reports(reports, ledger, track)

    def _samples(self, rank: int) -> None:
        """The samples that were done last in each step, each with its phases.

        The first row has the last one of each step.
        """
        edges = sorted({(step.start, step.end) for step in self._all_steps()})
        starts, ends = (
            (np.array(column, np.int64) for column in zip(*edges, strict=True))
            if (edges)
            else (np.empty(0, np.int64),) * 2
        )
        samples = samples_of(self._ledgers, starts, ends)
        if not len(samples):
            return
        whole = int(samples.start.min()), int(samples.end.max()) + 1
        rows: dict[int, list[_Row]] = defaultdict(list)
        plotted: set[int] = set()
        count = 0
        by_sample = np.argsort(samples.sample, kind="stable")
        bounds = np.searchsorted(samples.sample[by_sample], np.arange(len(samples.ids) + 1))
        for start, end in edges or [whole]:
            if end < self._begin or start > self._end:
                continue
            last = tail(samples, start, end)
            numbers = [number for number in last.sample.tolist() if number not in plotted]
            count += len(numbers)
            for row, number in enumerate(numbers[:_MOST_SAMPLE_ROWS]):
                plotted.add(number)
                phases = by_sample[bounds[number] : bounds[number + 1]]
                rows[row] += _phases(samples, number, phases)
        group = self._writer.track("samples", 0, rank)
        for row in sorted(rows):
            title = "done last" if not row else f"done {ordinal(row + 1)} to last"
            self._rows(title=title, parent=group, category="sample", rows=rows[row], rank=row)
        if count > len(plotted):
            self._timeline.notes.append(
                f"samples: of {count:,}, the {_MOST_SAMPLE_ROWS} that were done last in each step "
                "are shown"
            )

    def _all_steps(self) -> Iterator[Round]:
        yield from self._rounds
        for ledger in () if self._rounds else _steppers(self._ledgers):
            last = ledger.last
            for step in ledger.steps():
                yield Round(step.number, *_times_of(step, ledger, last))

    # What a process recorded of itself

    def _steps(self, title: str, ledger: Ledger, parent: int, rank: int) -> None:
        last = ledger.last
        self._rows(
            title=title,
            parent=parent,
            category="step",
            rows=[
                (f"step {step.number}", *_times_of(step, ledger, last), {})
                for step in ledger.steps()
            ],
            rank=rank,
        )

    def _machine(self, ledger: Ledger, parent: int) -> None:
        """Curves of what a node's processes together use, as one of them has noted it."""
        usage = self._readings(ledger.usage, ledger)
        for title, column in (
            ("threads that run or are ready to", "runnable"),
            ("memory left, GB", "available"),
        ):
            size = 1e9 if column == "available" else 1
            self._curve(title, parent, ledger, usage["time"], usage[column] / size)

    def _usage(self, ledger: Ledger, parent: int) -> None:
        """Curves of what a process used."""
        usage = self._readings(ledger.usage, ledger)
        times = usage["time"]
        of_work = ledger.threads["track"] == working_track(ledger)
        threads = self._readings(ledger.threads[of_work], ledger)
        self._curve("processors in use", parent, ledger, times, _rate(times, usage["processor"]))
        lack = _rate(threads["time"], threads["ready"])
        self._curve("waits for a processor, %", parent, ledger, threads["time"], 100 * lack)
        self._curve("memory, GB", parent, ledger, times, usage["resident"] / 1e9)
        moved = usage["read"] + usage["written"]
        self._curve("disks, MB/s", parent, ledger, times, 1e3 * _rate(times, moved))
        faults = 1e9 * _rate(times, usage["faults"])
        self._curve("page faults from a disk, 1/s", parent, ledger, times, faults)

    def _cards(self, ledger: Ledger, parent: int) -> None:
        """Curves of a process's GPUs."""
        for event in ledger.events:
            if event["event"] == FOUND:
                number = event.get("card")
                number = number if isinstance(number, int) else 0
                rows = self._readings(ledger.cards[ledger.cards["card"] == number], ledger)
                name = f"GPU {number}"
                for title, values in (
                    ("kernels, % of the time", rows["percent"]),
                    ("memory, GB", rows["memory"] / 1e9),
                    ("clock, MHz", rows["clock"]),
                ):
                    self._curve(f"{name}: {title}", parent, ledger, rows["time"], values)

    def _readings(self, rows: Any, ledger: Ledger) -> Any:
        """The rows within the interval, evenly thinned, and the nearest on both sides of it."""
        edges = self._begin - ledger.offset, self._end - ledger.offset
        first, last = np.searchsorted(rows["time"], edges)
        rows = rows[max(0, first - 1) : last + 1]
        return rows[:: max(1, len(rows) // _MOST_READINGS)]

    def _curve(self, title: str, parent: int, ledger: Ledger, times: Integers, values: Any) -> None:
        if len(values) > 1 and values.any():
            moments = (times + ledger.offset).clip(self._begin, self._end)
            self._writer.counter(title, parent, moments, values.tolist(), _USAGE)

    def _windows(self, ledger: Ledger, parent: int) -> None:
        windows: list[_Row] = []
        inside: list[_Row] = []
        openings: dict[str, int] = {}
        since: dict[str, int] = {}
        for event in ledger.events:
            if event["event"] != "window":
                continue
            now = event["time"] + ledger.offset
            label, state = str(event.get("label")), event.get("state")
            if state == "opening":
                openings[label] = now
            elif state == "open":
                inside.append(("opening", since.get(label, now), now, {}))
            elif state in ("closed", "failed"):
                inside.append(("closing", since.get(label, now), now, {}))
                windows.append((f"window {label}", openings.pop(label, now), now, {}))
            since[label] = now
        last = ledger.last + ledger.offset
        for label, start in openings.items():
            windows.append((f"window {label} (not closed)", start, last, {}))
        self._rows(
            title="windows",
            parent=parent,
            category="window",
            rows=[*windows, *inside],
            rank=_WINDOWS,
        )
        for event in ledger.events:
            if event["event"] != "thinned":
                continue
            now = event["time"] + ledger.offset
            if self._begin <= now <= self._end:
                text = f"only sums from level {event.get('depth')} on: {event.get('why')}"
                self._writer.instant(text, parent, "ledger", now, _WINDOWS)

    def _spans(self, ledger: Ledger, parent: int) -> None:
        names = np.array(
            [self._writer.name(_key(ledger, place)) for place in range(len(ledger.places))]
        )
        depths = np.array([place.depth for place in ledger.places])
        arrows = self._arrows.get(id(ledger), {})
        rows_with_links = np.fromiter(arrows, np.int64)
        for track, rows in self._by_track(ledger, ledger.spans):
            places = ledger.spans["place"][rows]
            special = np.flatnonzero(np.isin(rows, rows_with_links)).tolist()
            self._slices(
                title=_title(ledger, track),
                parent=parent,
                category="scope",
                names=names[places],
                starts=ledger.spans["start"][rows] + ledger.offset,
                ends=ledger.spans["end"][rows] + ledger.offset,
                rank=_THREADS + _OF_THREAD * track,
                extras={position: arrows[int(rows[position])] for position in special},
                depths=depths[places],
                row=_shared_row(ledger, track, "scopes"),
            )

    def _folds(self, ledger: Ledger, parent: int) -> None:
        for track, rows in self._by_track(ledger, ledger.folds):
            slices: list[_Row] = []
            for place, _, start, end, count, busy in ledger.folds[rows].tolist():
                name = (
                    f"{_key(ledger, place)} \N{MULTIPLICATION SIGN}{count}, busy {_duration(busy)}"
                )
                about = {"calls": count, "busy seconds": busy / 1e9}
                slices.append((name, start + ledger.offset, end + ledger.offset, about))
            title = f"{_title(ledger, track)}, folded"
            row = _shared_row(ledger, track, "folded")
            self._rows(
                title=title,
                parent=parent,
                category="folded",
                rows=slices,
                rank=_THREADS + _OF_THREAD * track + 1,
                shared_row=row,
            )

    def _stacks(self, ledger: Ledger, parent: int) -> None:
        """What each thread ran, as far as samples have seen it."""
        try:
            read = artifacts.read(ledger)
        except OutputError as error:
            self._timeline.problems.append(str(error))
            return
        if read is None:
            return
        if read.problem:
            self._timeline.notes.append(read.problem)
        stacks = [() if is_idle(stack) else stack for stack in numbered(read)]
        charts = []
        for track, rows in self._by_track(ledger, read.samples):
            samples = np.sort(read.samples[rows], order="start")
            seen = [stacks[number] for number in samples["stack"].tolist()]
            times = zip(samples["start"].tolist(), samples["end"].tolist(), strict=True)
            charts.append((track, chart(zip(seen, times, strict=True))))
        most = max(_FEWEST_SAMPLED, _MOST_SAMPLED // len(self._ledgers))
        lengths = sorted(end - start for _, found in charts for _, start, end, _ in found)
        # a function ends before its callers, so none loses them
        too_short = lengths[-most - 1] if len(lengths) > most else -1
        for track, found in charts:
            shown = [row for row in found if row[2] - row[1] > too_short]
            self._too_short += len(found) - len(shown)
            names, starts, ends, depths = zip(*shown, strict=True) if shown else ((),) * 4
            self._slices(
                title=f"{_title(ledger, track)}, stacks",
                parent=parent,
                category="stack",
                names=np.array([self._writer.name(name) for name in names], np.int64),
                starts=np.array(starts, np.int64) + ledger.offset,
                ends=np.array(ends, np.int64) + ledger.offset,
                rank=_THREADS + _OF_THREAD * track + 2,
                depths=np.array(depths, np.int64),
                row=_shared_row(ledger, track, "stacks"),
            )

    def _by_track(self, ledger: Ledger, rows: Any) -> Iterator[tuple[int, Integers]]:
        """The positions of a ledger's rows that lie in the interval, for each track."""
        inside = rows["end"] >= self._begin - ledger.offset
        visible = np.flatnonzero(inside & (rows["start"] <= self._end - ledger.offset))
        tracks = rows["track"][visible]
        for track in np.unique(tracks).tolist():
            yield track, visible[tracks == track]

    def _unfinished(self, ledger: Ledger, parent: int) -> None:
        """The scopes that were open when the ledger ended."""
        last = ledger.last
        rows: list[_Row] = []
        spans = ledger.spans[np.isin(ledger.spans["place"], ledger.open["place"])]
        complete = set(zip(spans["place"].tolist(), spans["start"].tolist(), strict=True))
        for place, start in ledger.open.tolist():
            if (place, start) not in complete:  # else only the end is newer
                name = f"{_key(ledger, place)} (unfinished)"
                rows.append((name, start + ledger.offset, last + ledger.offset, {}))
        self._rows(
            title="unfinished",
            parent=parent,
            category="unfinished",
            rows=rows,
            rank=_THREADS + _OF_THREAD * len(ledger.tracks),
        )

    def _collections(self, ledger: Ledger, parent: int) -> None:
        """Where the garbage collector stopped the process."""
        rows: list[_Row] = [
            (f"generation {generation}", start + ledger.offset, end + ledger.offset, {})
            for generation, start, end in ledger.collections.tolist()
        ]
        self._rows(
            title="garbage collection",
            parent=parent,
            category="collection",
            rows=rows,
            rank=_WINDOWS,
        )

    # What a profiler recorded

    def _reports(self, reports: Sequence[Recorded], ledger: Ledger | None, parent: int) -> None:
        """Draw a worker's reports, with one row for each thread or stream."""
        by_track: dict[tuple[Any, ...], list[tuple[RecordedTrack, int]]] = defaultdict(list)
        for report in reports:
            zero = 0
            if ledger is not None:
                # the profiler has the wall clock; from where it begins, both go on alike
                first = min(
                    (track.spans[0][1] for track in report.tracks if track.spans), default=0
                )
                zero = _at_wall(ledger, first) - first
                zero += self._checked(report, ledger, zero)
            for track in report.tracks:
                by_track[_order_of_track(track)].append((track, zero))
        base = _THREADS + _OF_THREAD * (len(ledger.tracks) if ledger else 0) + 1
        groups: dict[str, int] = {}
        for rank, key in enumerate(sorted(by_track), base):
            track = by_track[key][0][0]
            group, title = parent, f"{_whose(track, ledger)}: {track.kind}"
            if track.thread and track.kind != _RANGES:  # of every thread of the process
                if track.kind not in groups:
                    groups[track.kind] = self._writer.track(track.kind, parent, rank)
                group, title = groups[track.kind], _whose(track, ledger)
            rows = [
                (name, start + zero, end + zero)
                for one, zero in by_track[key]
                for name, start, end in one.spans
                if end + zero >= self._begin and start + zero <= self._end
            ]
            names, starts, ends = zip(*rows, strict=True) if rows else ((), (), ())
            self._slices(
                title=title,
                parent=group,
                category=track.kind,
                names=np.array([self._writer.name(name) for name in names], np.int64),
                starts=np.array(starts, np.int64),
                ends=np.array(ends, np.int64),
                rank=rank,
            )

    def _checked(self, report: Recorded, ledger: Ledger, zero: int) -> int:
        """The correction of a profiler's times that puts ranges where their scopes are."""
        shift = clock_shift(report.tracks, ledger, zero)
        if shift is None or abs(shift) <= _AGREE:
            return 0
        name = os.path.basename(report.file)
        behind = "behind" if shift > 0 else "ahead of"
        note = f"{name}: the profiler's clock is {abs(shift) / 1e6:.3f} ms {behind} the ledger's"
        self._timeline.notes.append(f"{note}; shown by the ledger's")
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
        visible = [row for row in rows if row[2] >= self._begin and row[1] <= self._end]
        if not visible:
            return
        self._slices(
            title=title,
            parent=parent,
            category=category,
            names=np.array([0] * len(visible)),
            starts=np.array([start for _, start, _, _ in visible]),
            ends=np.array([end for _, _, end, _ in visible]),
            rank=rank,
            extras={row: Extra(name, about) for row, (name, _, _, about) in enumerate(visible)},
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
        self._timeline.slices += len(starts)
        self._writer.slices(
            title=title,
            parent=parent,
            category=category,
            names=names,
            starts=starts,
            ends=ends,
            rank=rank,
            extras=extras,
            depths=depths,
            row=row,
        )


def _rate(times: Integers, counts: Any) -> Any:
    """By how much a count goes up for each nanosecond, from each time to the next one."""
    rates = np.diff(counts) / np.maximum(1, np.diff(times))
    return np.append(rates, rates[-1:])


_Row = tuple[str, int, int, dict[str, "str | int | float"]]
"""A slice's name, start, end, and the details that are shown with the slice."""


def _phases(samples: Samples, number: int, phases: Integers) -> list[_Row]:
    """A sample, and its phases inside it."""
    rows: list[_Row] = []
    for at in phases.tolist():
        notes = {
            name: float(values[at])
            for name, values in samples.notes.items()
            if not np.isnan(values[at])
        }
        name = samples.names[samples.phase[at]]
        name = name if samples.ended[at] else f"{name} (never ended)"
        rows.append((name, int(samples.start[at]), int(samples.end[at]), dict(notes)))
    begin, end = min(row[1] for row in rows), max(row[2] for row in rows)
    return [(samples.ids[number], begin, end, {}), *rows]


def _times_of(step: Step, ledger: Ledger, last: int) -> tuple[int, int]:
    return step.start + ledger.offset, (last if step.end is None else step.end) + ledger.offset


def _order_of_process(ledger: Ledger) -> tuple[Any, ...]:
    header = ledger.header
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


def _owner(report: Recorded, ledgers_here: Sequence[Ledger]) -> Ledger | None:
    """The ledger of the start that made a report: one whose process is in it, or else the last."""
    starts = [
        ledger
        for ledger in ledgers_here
        if ledger.header["role"] != "child"
        and report.worker == f"{ledger.header['group']}-{ledger.header['rank']}"
    ]
    processes = {track.process for track in report.tracks}
    candidates = [ledger for ledger in starts if ledger.header["pid"] in processes] or starts
    return candidates[-1] if candidates else None


def _order_of_track(track: RecordedTrack) -> tuple[Any, ...]:
    return (
        track.kind != _RANGES,
        bool(track.thread),
        track.kind,
        track.process,
        track.thread,
        track.name,
    )


def _about(ledger: Ledger) -> str:
    if ledger.bound is None:
        clock = "its clock's error is not known"
    else:
        clock = f"its clock is right within {_duration(ledger.bound)}"
    return f"process {ledger.header['pid']}; {clock}"


def _key(ledger: Ledger, place: int) -> str:
    return ledger.places[place].key


def _title(ledger: Ledger, number: int) -> str:
    track = ledger.tracks[number]
    return f"{track.name or 'unknown thread'}{', tasks' if track.task else ''}"


def _shared_row(ledger: Ledger, number: int, what: str) -> str | None:
    """The row on the screen that all tasks of a thread share; ``None`` for a thread."""
    track = ledger.tracks[number]
    return f"{what} of the tasks of {track.thread}" if track.task else None


def _whose(track: RecordedTrack, ledger: Ledger | None) -> str:
    """The thread or stream of a profiler's track, by name."""
    if not track.thread:
        return track.name
    thread = f"thread {track.thread}" + (f" ({track.name})" if track.name else "")
    if ledger is None or track.process not in (0, ledger.header["pid"]):
        return f"process {track.process}, {thread}"
    return next((one.name for one in ledger.tracks if one.native == track.thread), thread)


def _duration(nanoseconds: int) -> str:
    """A duration in words: ``1.2 s``, ``35 ms`` or ``20 µs``."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("\N{MICRO SIGN}s", 10**3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"


# Arrows


def _arrows(ledgers: Sequence[Ledger], begin: int, end: int) -> dict[int, dict[int, Extra]]:
    """Arrows from releasing to waiting spans, by the ledger's `id` and the span's position."""
    links: dict[int, list[_End]] = defaultdict(list)
    for ledger in ledgers:
        rows = ledger.links
        if not len(rows):
            continue
        starts, ends = rows["start"] + ledger.offset, rows["end"] + ledger.offset
        for row in np.flatnonzero((ends >= begin) & (starts <= end)).tolist():
            place, track, _, _, key, role = rows[row].tolist()
            links[key].append(_End(ledger, (place, track), int(starts[row]), int(ends[row]), role))
    extras: dict[int, dict[int, Extra]] = defaultdict(dict)
    positions: dict[int, dict[tuple[int, int, int, int], int]] = {}
    number = 0

    def extra_of(end_: _End) -> Extra | None:
        ledger = end_.ledger
        if id(ledger) not in positions:
            positions[id(ledger)] = _positions(ledger)
        position = positions[id(ledger)].get(
            (*end_.where, end_.start - ledger.offset, end_.end - ledger.offset)
        )
        return None if position is None else extras[id(ledger)].setdefault(position, Extra())

    for ends_of_key in links.values():
        for source, at, target in _pairs(ends_of_key):
            if not (begin <= at < target.end <= end):
                continue  # the clocks' error exceeds the arrow, which would go back in time
            one, other = extra_of(source), extra_of(target)
            if one is None or other is None or one is other:
                continue
            number += 1
            mark = one.end if at == source.end else one.begin
            mark.leaves[number] = target.ledger.name
            other.end.arrives[number] = source.ledger.name
    return extras


@attrs.frozen(eq=False)
class _End:
    """One end of arrows: a span with a key. Times are the run's."""

    ledger: Ledger
    where: tuple[int, int]
    start: int
    end: int
    role: int


def _pairs(ends: Sequence[_End]) -> Iterable[tuple[_End, int, _End]]:
    """Pairs of a releasing and a waiting span, with the time of the release."""
    releases = sorted((end for end in ends if end.role == RELEASES), key=lambda end: end.end)
    times = [end.end for end in releases]
    for end in ends:
        if end.role == WAITS and releases:
            # a task that was tried again has several; the one that counts ended last before
            before = bisect_left(times, end.end)
            source = releases[max(0, before - 1)]
            yield source, source.end if before else source.start, end
    meeting: list[_End] = []
    over = 0
    for end in sorted((end for end in ends if end.role == MEETS), key=lambda end: end.start):
        if meeting and end.start > over:  # the key has come again
            yield from _meeting(meeting)
            meeting = []
        over = min(over, end.end) if meeting else end.end
        meeting.append(end)
    yield from _meeting(meeting)


def _meeting(meeting: Sequence[_End]) -> Iterable[tuple[_End, int, _End]]:
    """Pairs at a meeting: the last to begin releases all others."""
    for end in meeting[:-1]:
        yield meeting[-1], meeting[-1].start, end


def _positions(ledger: Ledger) -> dict[tuple[int, int, int, int], int]:
    """The positions of the spans that have links."""
    places = np.unique(ledger.links["place"])
    rows = np.flatnonzero(np.isin(ledger.spans["place"], places))
    return dict(zip(ledger.spans[rows].tolist(), rows.tolist(), strict=True))

"""What processes use of their machines: processors, memory and disks, and what they lack.

All of it is recorded about once a second. Steps that are shorter share what lies between two
readings.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.run import Floats, Process, Run, thread_times, time_at, working_track
from gpuprof._artifacts.ledger import Ledger
from gpuprof._session.cards import FOUND

BUSY = 0.1
"""A machine counts as busy if processes wait for a processor for this share of their time."""
FAULT = 500_000
"""Nanoseconds that a page fault may take that reads a disk: 0.1 ms with an SSD, several with a disk
that turns, or across a network."""
_LEAST_READINGS = 9
"""Readings of a process's memory that a trend needs: three in each third of the steps."""
_LEAST_GROWTH = 32_000_000
"""Bytes by which memory must grow in all."""
_LEAST_RATIO = 0.05
"""The same as a share of the memory that is in use at first."""
_STEADY = 0.5
"""Share of the mean growth of the thirds of the steps that each of them must have."""
_LEAST_OF_READING = 0.3
"""Share of the time between two readings that a step must have for what was read to be its own."""
_STRAIGHT = 0.15
"""Standard deviation of the memory from a straight line that it may have, as a share of its growth.
"""
_MOST_POINTS = 200
_HOT = 0x08 | 0x20 | 0x40
"""NVML's reasons for a lower clock that are heat: slowed by the hardware, by software and by the
hardware for heat."""
_LIMITED = 0x04 | 0x80
"""Its reasons that are power: the limit of the software, and the brake of the hardware."""


@attrs.frozen
class Thread:
    """A thread of Python that ran while the working thread may have needed the interpreter.

    Args:
        ran: share of the time that it ran.
    """

    name: str
    ran: float


@attrs.frozen
class Card:
    """A GPU, on the average of the steps that count.

    Args:
        busy: share of the time in which a kernel ran.
        memory: the most bytes of its memory in use, by all processes.
        of_memory: bytes of its memory.
        of_clock: the highest that it can have.
        hot: share of the readings in which it was slowed since it was too hot.
        limited: share of the readings in which it was slowed to take less power.
    """

    name: str
    busy: float
    memory: int
    of_memory: int
    clock: float
    of_clock: int
    hot: float
    limited: float


@attrs.frozen
class Usage:
    """What a process used, on the average of the steps that count.

    Args:
        processors: how many processors all its threads together kept busy.
        waited: share of the time that its working thread, ready to run, waited for a processor.
        ran: share of the time that this thread ran.
        works: share of the time that it was in scopes that work; ``None`` if that is not known.
        thread: the other thread of Python that ran most; ``None`` without one.
        resident: bytes in memory at the end.
        growth: bytes by which its memory grows with each step; 0 if it does not grow steadily.
        read: bytes read from disks a step.
        written: bytes written to disks a step.
        faults: page faults a step that read a disk, as swapping does.
        load: how many threads of its machine ran or were ready to; 0 if that is not known.
        available: bytes of memory that its machine has left at the end; 0 if that is not known.
        usable: how many of them its main thread may use.
        cards: the GPUs that it used, where NVML tells.
    """

    worker: str
    node: str
    processors: float
    waited: float
    ran: float
    works: float | None
    thread: Thread | None
    resident: int
    growth: float
    read: float
    written: float
    faults: float
    load: float
    available: int
    machine_processors: int
    usable: int
    cards: list[Card]

    @property
    def lacks(self) -> float:
        """Share of the processor time that the working thread needs which it did not get."""
        return self.waited / max(1e-9, self.ran + self.waited)

    @property
    def share_lacking(self) -> float:
        """What `lacks` would be if all that its machine runs shared the processors evenly.

        1 if that is not known.
        """
        if not self.load:
            return 1.0
        return 1 - min(1.0, self.machine_processors / self.load)

    @property
    def stood_still(self) -> float:
        """Share of the time that it neither ran nor was ready to, although in scopes that work."""
        return max(0.0, (self.works or 0.0) - self.ran - self.waited)


@attrs.frozen(eq=False)
class StepUsage:
    """What a process used in each step of the run, as arrays by step.

    Args:
        processor: nanoseconds of all its threads together.
        ran: nanoseconds for which its working thread ran.
        ready: nanoseconds for which this thread, ready to run, waited for a processor.
        resident: bytes in memory at the end of the step.
        read: bytes read from disks.
        written: bytes written to disks.
        faults: page faults that read a disk, as swapping does.
    """

    processor: Floats
    ran: Floats
    ready: Floats
    resident: Floats
    read: Floats
    written: Floats
    faults: Floats


def by_step(run: Run, process: Process) -> StepUsage | None:
    """What a process used in each step; ``None`` if its ledger does not tell.

    Before the first reading and after the last one it used nothing, as far as is known.
    """
    ledger, track = process.ledger, working_track(process.ledger)
    threads = ledger.threads[ledger.threads["track"] == track]
    if len(threads) < 2 or len(ledger.usage) < 2:
        return None
    starts, ends = (edges - ledger.offset for edges in run.step_edges(process))

    def at(edges: NDArray[np.int64], rows: NDArray[np.void], column: str) -> Floats:
        values: Floats = np.interp(edges, rows["time"], rows[column])
        return values

    def added(rows: NDArray[np.void], column: str) -> Floats:
        return at(ends, rows, column) - at(starts, rows, column)

    return StepUsage(
        processor=added(ledger.usage, "processor"),
        ran=added(threads, "ran"),
        ready=added(threads, "ready"),
        resident=at(ends, ledger.usage, "resident"),
        read=added(ledger.usage, "read"),
        written=added(ledger.usage, "written"),
        faults=added(ledger.usage, "faults"),
    )


def waited_more(run: Run, process: Process, steps: Sequence[int]) -> float:
    """Nanoseconds more than usual that a process waited for a processor around some steps.

    That is from the last reading before each step to the first one after it.

    Args:
        steps: positions in `Run.steps`.
    """
    ledger, track = process.ledger, working_track(process.ledger)
    threads = ledger.threads[ledger.threads["track"] == track]
    return _counted_more(run, process, threads, "ready", steps, of_time=True)


def faulted_more(run: Run, process: Process, steps: Sequence[int]) -> float:
    """Like `waited_more`: how many page faults more than usual read a disk."""
    return _counted_more(run, process, process.ledger.usage, "faults", steps)


def _counted_more(
    run: Run,
    process: Process,
    rows: NDArray[np.void],
    column: str,
    steps: Sequence[int],
    of_time: bool = False,
) -> float:
    """How much more than usual a column has grown between the readings around some steps.

    Args:
        of_time: whether it counts nanoseconds: then no more than the steps have there.
    """
    offset = process.ledger.offset
    # what a process does before the loop is not what it does in a step
    rows = rows[rows["time"] >= run.steps[0].start - offset]
    if len(rows) < 2:
        return 0.0
    times, counts = np.diff(rows["time"]), np.diff(rows[column])
    starts, ends = (edges[list(steps)] - offset for edges in run.step_edges(process))
    around, within = np.zeros(len(times), bool), np.zeros(len(times))
    for first, last, start, end in zip(
        np.searchsorted(rows["time"][1:], starts, "right"),
        np.searchsorted(rows["time"][:-1], ends),
        starts,
        ends,
        strict=True,
    ):
        around[first:last] = True
        before, after = rows["time"][first:last], rows["time"][first + 1 : last + 1]
        within[first:last] += np.minimum(after, end) - np.maximum(before, start)
    if of_time:  # of a step that is short beside a reading, nothing tells
        around &= within >= _LEAST_OF_READING * times
    more = counts - float(np.median(counts / times.clip(1))) * times
    return float((np.minimum(more, within) if of_time else more)[around].sum())


def busy(usages: Iterable[Usage]) -> float:
    """The median share of the time that processes, ready to run, waited for a processor.

    0 if the machine was not busy.
    """
    shares = [usage.waited for usage in usages]
    share = statistics.median_low(shares) if shares else 0.0  # half of them waited as long
    return share if share >= BUSY else 0.0


def usage_of(run: Run, process: Process) -> Usage | None:
    """What a process used; ``None`` if its ledger does not tell, or no step counts."""
    ledger, track = process.ledger, working_track(process.ledger)
    if not run.usual or track is None:
        return None
    start, stop = run.steps[run.usual[0]].start, run.steps[run.usual[-1]].end
    times = thread_times(process, ledger.threads[ledger.threads["track"] == track], start, stop)
    if times is None or len(ledger.usage) < 2:
        return None
    begin, end = times.begin - ledger.offset, times.end - ledger.offset
    nanoseconds = end - begin
    a_step = (run.steps[-1].end - run.steps[0].start) / len(run.steps)

    def added(column: str) -> float:
        """By how much a count went up, for each nanosecond."""
        edges = np.interp([begin, end], ledger.usage["time"], ledger.usage[column])
        return float(edges[1] - edges[0]) / nanoseconds

    within = (ledger.usage["time"] >= begin) & (ledger.usage["time"] <= end)
    usage = ledger.usage[within] if within.any() else ledger.usage[-1:]
    last = usage[-1]
    thread = _busiest_other(process, track, begin, end)
    return Usage(
        worker=process.name,
        node=process.node,
        processors=added("processor"),
        # the kernel's counts and the clock are not read at the same moment: a share may exceed 1
        waited=min(1.0, times.ready / nanoseconds),
        ran=min(1.0, times.ran / nanoseconds),
        works=_works(run, process, track, begin, end),
        thread=None if thread is None else Thread(thread[0], thread[1] / nanoseconds),
        resident=int(last["resident"]),
        growth=_growth(run, process, usage),
        read=added("read") * a_step,
        written=added("written") * a_step,
        faults=added("faults") * a_step,
        load=float(usage["runnable"].mean()),
        available=int(last["available"]),
        machine_processors=int(last["processors"]),
        usable=int(last["usable"]),
        cards=_cards(ledger, begin, end),
    )


def _cards(ledger: Ledger, begin: int, end: int) -> list[Card]:
    """What a process's GPUs did between two times of its clock."""
    readings = ledger.cards[(ledger.cards["time"] >= begin) & (ledger.cards["time"] <= end)]
    cards = []
    for event in ledger.events:
        rows = readings[readings["card"] == _number(event.get("card"))]
        if event["event"] == FOUND and len(rows):
            reasons = rows["reasons"]
            cards.append(
                Card(
                    name=str(event.get("name")),
                    busy=float(rows["percent"].mean()) / 100,
                    memory=int(rows["memory"].max()),
                    of_memory=_number(event.get("memory")),
                    clock=float(rows["clock"].mean()),
                    of_clock=_number(event.get("clock")),
                    hot=float((reasons & _HOT > 0).mean()),
                    limited=float((reasons & _LIMITED > 0).mean()),
                )
            )
    return cards


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _works(run: Run, process: Process, track: int, begin: int, end: int) -> float | None:
    """Share of some time that a thread spent in scopes that work; see `Usage.works`."""
    ledger = process.ledger
    thread = ledger.tracks[track].native
    if any(other.task and other.native == thread for other in ledger.tracks):
        return None  # the scopes of its tasks overlap, and go on while a task is suspended
    waiting = time_at(process, run.waiting_places | run.may_wait, [track], begin, end)
    inside = float(end - begin)
    if process.number not in run.edges:  # it may wait for a call outside of all scopes
        inside = time_at(process, np.ones_like(run.waiting_places), [track], begin, end)
    return max(0.0, inside - waiting) / max(1, end - begin)


def _busiest_other(process: Process, track: int, begin: int, end: int) -> tuple[str, float] | None:
    """The name of the other thread that ran longest, and for how many nanoseconds."""
    rows = process.ledger.threads
    longest: tuple[str, float] | None = None
    for other in np.unique(rows["track"]).tolist():
        if other == track:
            continue
        of_other = rows[rows["track"] == other]
        first, last = np.interp([begin, end], of_other["time"], of_other["ran"])
        if longest is None or last - first > longest[1]:
            longest = process.ledger.tracks[other].name, float(last - first)
    return longest


def _growth(run: Run, process: Process, usage: NDArray[np.void]) -> float:
    """Bytes by which a process's memory grows with each step; 0 if it does not grow steadily.

    What is in memory now and is given back later, as by the garbage collector, does not count. A
    cache that fills grows less and less.
    """
    if len(usage) < _LEAST_READINGS:
        return 0.0
    starts, ends = run.step_edges(process)
    marked = np.flatnonzero(ends > starts)  # a rank may lack steps of the others
    if not len(marked):
        return 0.0
    at = np.interp(usage["time"], starts[marked] - process.ledger.offset, marked)
    # shared memory, as of a DataLoader's batches, belongs to no single process
    private = (usage["resident"] - usage["shared"]).astype(float)
    kept = np.minimum.accumulate(private[::-1])[::-1]
    grown = kept[-1] - kept[0]
    if at[-1] <= at[0] or grown < max(_LEAST_GROWTH, _LEAST_RATIO * kept[0]):
        return 0.0
    thirds = np.diff(np.interp(np.linspace(at[0], at[-1], 4), at, kept))
    if thirds.min() < _STEADY * grown / 3:
        return 0.0
    chosen = np.unique(np.linspace(0, len(at) - 1, min(len(at), _MOST_POINTS)).astype(int))
    at, kept = at[chosen], kept[chosen]
    pairs = np.triu_indices(len(at), 1)
    apart = at[pairs[1]] - at[pairs[0]]
    slopes = (kept[pairs[1]] - kept[pairs[0]])[apart > 0] / apart[apart > 0]
    slope = float(np.median(slopes))  # a few readings that are off do not change it
    return slope if np.std(kept - slope * at) <= _STRAIGHT * grown else 0.0

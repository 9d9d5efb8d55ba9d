"""A run as its ledgers tell it: processes, places and steps on one line of time, and sums.

`gpuprof explain`, `gpuprof diff` and `gpuprof html` are built on it.

All times here are nanoseconds of the run's line of time: since the epoch, on the driver's node.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.samples import Samples
from gpuprof._analysis.waits import BARRIER, COMMUNICATES, NOTHING, READS_DEVICE
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.ledger import RELEASES, Ledger
from gpuprof._artifacts.runs import State
from gpuprof._session.instruments.collectives import MESSAGES
from gpuprof._session.instruments.threads import THREAD
from gpuprof._session.ledger import PROCESS_GROUP, STARTS_RANKS

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

SUMS = [
    ("step", "<i4"),
    ("process", "<i4"),
    ("place", "<i4"),
    ("busy", "<f8"),
    ("own", "<f8"),
    ("waiting", "<f8"),
    ("collecting", "<f8"),
    ("calls", "<f8"),
]
"""A row of `Run.sums`. ``step``, ``process`` and ``place`` are positions in `Run.steps`,
`Run.processes` and `Run.places`. In nanoseconds: ``busy`` is the time in the place, and ``own`` the
time in it but in no scope inside it. Of ``own``, the process waited for ``waiting``, and the
garbage collector stopped it for ``collecting``. ``calls`` ended or went on in the step; a fold that
crosses an edge of the step counts with its share."""

OUTSIDE = -1
"""The place of what is in no scope."""
MAIN_TRACK = "MainThread"
_RUNS = 0.8
"""Share of its time outside waiting scopes that a thread must run, or be ready to, to be working.
"""
_ONLY_WAITS = 0.9
"""Share of the steps for which the thread that marks them waits if another thread does the work."""
WAIT = "(wait for other ranks)"
"""The key of a place that nobody recorded: see `gpuprof._analysis.collectives`."""


@attrs.frozen
class Place:
    """A place in the timing trees of one or more processes.

    Args:
        name: of its scopes; that of the scope around it, where ranks were only seen to wait there.
        path: the names of the scopes around it and its own, as people read them.
        parent: the position of the place around it; ``-1`` at the top.
        waits_for: a worker group, ``barrier``, ``data``, ``*`` (waits, for whom is unknown), or
            ``None`` if scopes here work. Scopes inside one that waits wait as well.
    """

    name: str
    path: str
    parent: int
    depth: int
    waits_for: str | None = None

    @classmethod
    def inside(cls, around: Place | None, parent: int, name: str, waits_for: str | None) -> Place:
        """A place inside another one, whose position is `parent`; or at the top."""
        if around is None:
            return cls(name, name, -1, 0, waits_for)
        return cls(name, f"{around.path}/{name}", parent, around.depth + 1, waits_for)


@attrs.define(eq=False)
class Process:
    """A process with a ledger.

    Args:
        name: as ``ActorGroup-0``; a worker that was started twice has two processes of one name.
        role: ``worker``, ``child`` or ``driver``.
        places: for each place of the ledger its position in `Run.places`; ``-1`` for none.
    """

    number: int
    name: str
    group: str
    rank: int
    node: str
    role: str
    ledger: Ledger
    places: Integers


@attrs.frozen
class Step:
    """A step of the run.

    Args:
        number: what the job calls it. A number may come again.
        end: the same; where the ledgers end if the step did not.
        complete: whether it has ended, in every rank that began it, and no worker was killed in it.
        disturbed: whether that, or a window that opens or closes, slows it.
        warm_up: whether it is one of the first, which take longer.
    """

    number: int
    start: int
    end: int
    complete: bool = True
    captured: bool = False
    disturbed: bool = False
    warm_up: bool = False

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start

    @property
    def usual(self) -> bool:
        """Whether figures may use it: it is complete, undisturbed and no warm-up."""
        return self.complete and not self.disturbed and not self.warm_up


@attrs.frozen
class Collective:
    """A place in which the ranks of a group were seen to meet, although nothing recorded it."""

    group: str
    scope: str


@attrs.define(eq=False, slots=False)
class Run:
    """What all ledgers of a run say together.

    Args:
        places: of all processes together: those with the same keys are one.
        driver: the driver's position in `processes`; ``None`` without one, where every rank marks
            steps of its own.
        helpers: the ledgers of the processes that only run functions for a process, such as those
            of a DataLoader, by its name and what they are: ``Worker-0-loader``. They have stacks
            only, and are none of `processes`.
        edges: without a driver, when each process began and ended each step: two rows of
            nanoseconds for each process, both 0 for a step that it did not mark.
        whole_life: workers that were captured from their start to their end.
        profiled: the positions in `processes` of those with a profiler, which slows them outside of
            windows, too.
        ended_early: workers that were killed or crashed while the run went on.
        ended_by_job: workers that the job itself ended while the run went on.
        step_at: what the configuration says a step is; empty if it does not.
        round: of what each step is a round, where nobody marked steps: the driver's calls, or a
            loop of the ranks; else empty.
        of_optimizer: whether each rank's steps are those of its optimizer, as nobody marked any.
        in_a_burst: how many steps of the optimizer a step is; 0 unless they come in bursts.
        recognised: places in which ranks wait for each other, as their times tell.
        elsewhere: how many steps are left out, with the ranks that marked them: a launcher has
            started the job several times, with different ranks.
        samples: the samples that the job has recorded.
        phases: for each of their phases its position in `places`, which has no calls.
        attributes: numbers that the job gave of each step, such as tokens: an array by position in
            `steps` for each name, NaN where it gave none. See `samples.attributes_of`.
        state: whether it has ended, as far as its files tell.
        quiet: for how many seconds no scope or step has ended; before its end, if it is over.
        stall: if it goes on, what the watchdog's last report says of who waits for whom.
        problems: a sentence for each ledger that cannot be read, or not as a whole.
    """

    name: str
    processes: list[Process]
    places: list[Place]
    steps: list[Step]
    driver: int | None = None
    instruments: frozenset[str] = frozenset()
    edges: dict[int, Integers] = attrs.field(factory=dict)
    helpers: Mapping[str, Sequence[Ledger]] = attrs.field(factory=dict)
    whole_life: list[str] = attrs.field(factory=list)
    profiled: frozenset[int] = frozenset()
    ended_early: list[EarlyEnd] = attrs.field(factory=list)
    ended_by_job: list[EarlyEnd] = attrs.field(factory=list)
    launched: bool = False
    step_at: str = ""
    round: str = ""
    of_optimizer: bool = False
    in_a_burst: int = 0
    recognised: list[Collective] = attrs.field(factory=list)
    elsewhere: int = 0
    samples: Samples = attrs.field(factory=Samples)
    phases: list[int] = attrs.field(factory=list)
    attributes: dict[str, Floats] = attrs.field(factory=dict)
    state: State = "ended"
    quiet: float = 0.0
    stall: str = ""
    problems: list[str] = attrs.field(factory=list)

    @functools.cached_property
    def untimed(self) -> frozenset[int]:
        """The positions in `processes` of those in which `GPUPROF_TIMING=0` switched scopes off."""
        return frozenset(
            process.number
            for process in self.processes
            if any(event["event"] == "untimed" for event in process.ledger.events)
        )

    @property
    def usual(self) -> list[int]:
        """The positions of the steps that figures may use."""
        return [position for position, step in enumerate(self.steps) if step.usual]

    @functools.cached_property
    def bound(self) -> int | None:
        """The most by which times of two processes may be off; ``None`` if that is not known.

        In nanoseconds. 0 if all processes share a clock.
        """
        by_clock = {p.ledger.header["clock"]: p.ledger.bound for p in self.processes}
        if len(by_clock) < 2:
            return 0
        worst = sorted(bound for bound in by_clock.values() if bound is not None)[-2:]
        return None if None in by_clock.values() else sum(worst)

    def apart(self, one: Process, other: Process) -> int | None:
        """The most by which the times of two given processes may be off; see `bound`."""
        if one.ledger.header["clock"] == other.ledger.header["clock"]:
            return 0
        bounds = one.ledger.bound, other.ledger.bound
        return None if bounds[0] is None or bounds[1] is None else bounds[0] + bounds[1]

    @functools.cached_property
    def groups(self) -> dict[str, list[Process]]:
        """The workers of each group, by rank. A child process counts in a group of children only.

        The driver is in none.
        """
        workers: dict[str, list[Process]] = {}
        for process in sorted(self.processes, key=lambda p: (p.group, p.rank, p.name)):
            if process.role != "driver":
                workers.setdefault(process.group, []).append(process)
        return {
            group: [process for process in members if process.role == "worker"] or members
            for group, members in workers.items()
        }

    @functools.cached_property
    def uncounted(self) -> list[Process]:
        """The processes with scopes that are in no group because another process has their rank."""
        workers = {process.number for group in self.groups.values() for process in group}
        return [
            process
            for process in self.processes
            if process.role == "child"
            and process.number not in workers
            and self.tracked[:, process.number].any()
        ]

    def step_edges(self, process: Process) -> tuple[Integers, Integers]:
        """Start and end of each step in a process, as arrays of nanoseconds.

        On Ray the driver's. Otherwise the process's own: a rank may begin a step before another has
        ended the one before. A step that a rank did not mark has no length.
        """
        if process.number in self.edges:
            own = self.edges[process.number]
            return own[0], own[1]
        return self._common_edges

    def _is_called(self, process: Process) -> bool:
        """Whether a process marks no steps itself."""
        return process.number != self.driver and process.number not in self.edges

    @functools.cached_property
    def _common_edges(self) -> tuple[Integers, Integers]:
        start = np.array([step.start for step in self.steps], np.int64)
        end = np.array([step.end for step in self.steps], np.int64)
        if len(end):  # steps of different ranks overlap: a process without its own counts once
            end[:-1] = np.minimum(end[:-1], start[1:])
        return start, end

    @functools.cached_property
    def sums(self) -> NDArray[np.void]:
        """Time and calls of every place in every step and process, a structured array of `SUMS`.

        In order of step, process and place. A scope that crosses an edge counts in each step with
        the time that it spent there. A fold does so by its share. A scope around a whole step, such
        as one around the training loop, says nothing about that step and is left out of it.
        """
        waits = self.waiting_places
        tables = [
            _sums(process, *self.step_edges(process), self._parents, self._is_called(process))
            for process in self.processes
        ]
        if not tables:
            return np.empty(0, SUMS)
        rows = np.concatenate(tables)
        rows["waiting"] = np.where(waits[rows["place"]], rows["own"], 0.0) if len(rows) else 0.0
        # of each process, they are in order of step and place already
        return rows[np.argsort(rows["step"], kind="stable")]

    def sums_between(self, process: Process, starts: Integers, ends: Integers) -> NDArray[np.void]:
        """Rows of `SUMS` of a process between given times instead of in steps, without waits."""
        return _sums(process, starts, ends, self._parents)

    @functools.cached_property
    def waiting_places(self) -> NDArray[np.bool_]:
        """Whether scopes at each place wait, because of themselves or of a scope around them."""
        waits = np.zeros(max(1, len(self.places)), bool)
        for number, place in enumerate(self.places):  # a parent stands before its children
            outer_waits = place.parent >= 0 and waits[place.parent]
            waits[number] = place.waits_for is not None or outer_waits
        return waits

    @functools.cached_property
    def may_wait(self) -> NDArray[np.bool_]:
        """Whether scopes at each place may wait although nothing says so.

        They communicate, or read what a device has computed.

        Those with a key do not: what they wait for, or release, is known.
        """
        flags = np.zeros(max(1, len(self.places)), bool)
        for number, place in enumerate(self.places):
            name = place.name.lower()
            match = COMMUNICATES.search(name) or READS_DEVICE.search(name)
            flags[number] = match is not None and not self.waiting_places[number]
        for process in self.processes if flags.any() else ():
            flags[process.places[np.unique(process.ledger.links["place"])]] = False
        return flags

    @functools.cached_property
    def tracked(self) -> Floats:
        """Nanoseconds that each process spent in any scope, by step (rows) and process (columns).

        Scopes in several threads or tasks at once count once.
        """
        times = np.zeros((len(self.steps), len(self.processes)))
        for process in self.processes:
            edges = self.step_edges(process)
            called = self._is_called(process)
            times[:, process.number] = _covered(process, *edges, self._parents, called)
        return times

    @functools.cached_property
    def starters(self) -> frozenset[int]:
        """The positions of the processes that do nothing but start ranks and wait for them."""
        return frozenset(
            process.number
            for process in self.processes
            if _groups_started(process)
            and process.number not in self.edges
            and not self.tracked[:, process.number].any()
        )

    @functools.cached_property
    def started_groups(self) -> frozenset[str]:
        """The groups whose ranks another process of the run has started."""
        return frozenset().union(*map(_groups_started, self.processes))

    def starts_others(self, process: Process) -> bool:
        """Whether a process of the run has started others of it."""
        return bool(_groups_started(process))

    @functools.cached_property
    def started(self) -> frozenset[int]:
        """The positions of the processes that another process of the run has started."""
        groups = self.started_groups
        return frozenset(process.number for process in self.processes if process.group in groups)

    @functools.cached_property
    def running(self) -> frozenset[int]:
        """The positions of the processes whose `own_tracks` work where they are in no scope.

        Of those that mark steps, of those that are in one call nearly all the time, and of those
        that another process has started to run a function: nobody calls them meanwhile. A thread
        that runs, or is ready to, does not wait there for what nobody recorded, and a process that
        is alone has nobody to wait for: of one process, without a process group of more ranks,
        whose ledgers may be on other nodes. Processes of which that is not known are left out.
        """
        marking = self.edges.keys() if self.driver is None else {self.driver}
        numbers = {*marking, *self.in_one_call, *self.started}
        if len(self.processes) == 1 and not _is_one_of_several(self.processes[0]):
            return frozenset(numbers)
        return frozenset(number for number in numbers if self._runs(self.processes[number]))

    @functools.cached_property
    def in_one_call(self) -> frozenset[int]:
        """The positions of the processes that are in one call nearly all the time.

        It may go on until the job ends, as a method that collects samples.
        """
        return frozenset(p.number for p in self.processes if self._is_in_one_call(p))

    def _is_in_one_call(self, process: Process) -> bool:
        if not self.usual:
            return False
        first, last = self.steps[self.usual[0]].start, self.steps[self.usual[-1]].end
        ledger, offset = process.ledger, process.ledger.offset
        if any(
            start + offset - first <= (1 - _RUNS) * (last - first)
            and ledger.places[place].depth == 1
            and ledger.places[place].waits_for is None
            and not ledger.places[place].key.endswith(THREAD)
            for place, start in ledger.open.tolist()
        ):
            return True
        calls = ledger.links[ledger.links["role"] == RELEASES]
        starts, ends = calls["start"] + offset, calls["end"] + offset
        inside = ends.clip(first, last) - starts.clip(first, last)
        return bool((inside >= _RUNS * (last - first)).any())

    @functools.cached_property
    def own_tracks(self) -> list[list[int]]:
        """By process, the tracks whose time in no scope is the process's own.

        They are of the thread that marks the steps, with its tasks; if that is not known, of the
        main thread.
        """
        return [_own_tracks(process.ledger) for process in self.processes]

    def _runs(self, process: Process) -> bool:
        if not self.usual:
            return False
        ledger = process.ledger
        first, last = self.steps[self.usual[0]].start, self.steps[self.usual[-1]].end
        marker = ledger.threads[ledger.threads["track"] == ledger.marker]
        times = thread_times(process, marker if len(marker) else ledger.main, first, last)
        if times is None:
            return False
        begin, end = times.begin - ledger.offset, times.end - ledger.offset
        own_tracks = self.own_tracks[process.number]
        waiting_time = time_at(process, self.waiting_places, own_tracks, begin, end)
        own_time = times.ran + times.ready
        is_main = not len(marker) or bool((marker["track"] == ledger.main["track"][:1]).all())
        if is_main and len(ledger.sleeps):
            readings = ledger.sleeps["time"], ledger.sleeps["slept"]
            own_time += float(np.diff(np.interp([begin, end], *readings)).item())
        return bool(own_time >= _RUNS * (end - begin - waiting_time))

    @functools.cached_property
    def lengths(self) -> Floats:
        """How long each step was, by step (rows) and process (columns), in nanoseconds.

        0 in a process that had ended before, or began later.
        """
        early = self.killed
        lengths = np.zeros((len(self.steps), len(self.processes)))
        for process in self.processes:
            start, end = self.step_edges(process)
            lengths[:, process.number] = end - start
            lengths[end <= process.ledger.first + process.ledger.offset, process.number] = 0
            if process.ledger.ended or process.number in early:
                lengths[start > process.ledger.last + process.ledger.offset, process.number] = 0
        return lengths

    @functools.cached_property
    def killed(self) -> frozenset[int]:
        """The positions in `processes` of those that crashed or were ended by the job."""
        return self.of_starts(
            (end["node"], end["worker"], end["incarnation"])
            for end in (*self.ended_early, *self.ended_by_job)
        )

    @functools.cached_property
    def gone(self) -> frozenset[int]:
        """Those of `killed` that were gone before the last step which counts.

        Others were ended after it, as libraries do with their actors when a job is over.
        """
        begins = max((self.steps[position].start for position in self.usual), default=0)
        ledgers = ((number, self.processes[number].ledger) for number in self.killed)
        return frozenset(
            number for number, ledger in ledgers if ledger.last + ledger.offset <= begins
        )

    def of_starts(self, starts: Iterable[tuple[str, str, str]]) -> frozenset[int]:
        """The positions in `processes` of starts of workers: node, name and incarnation of each."""
        keys = set(starts)
        return frozenset(
            process.number
            for process in self.processes
            if (process.node, process.name, process.ledger.header["incarnation"]) in keys
        )

    @functools.cached_property
    def meeting(self) -> Floats:
        """Nanoseconds for which each process waits in collectives, by step and process."""
        total = np.zeros((len(self.steps), len(self.processes)))
        for number, place in enumerate(self.places):
            if place.waits_for == BARRIER and place.name not in MESSAGES:
                total += self.matrix("own", number, self.processes)
        return total

    def matrix(self, column: str, place: int, processes: Sequence[Process]) -> Floats:
        """A column of `sums` at one place, by step (rows) and the given processes (columns).

        `OUTSIDE` has ``own`` nanoseconds, a call in each step, and those of them in which the
        process was ``collecting`` garbage.
        """
        if place == OUTSIDE:
            numbers = [process.number for process in processes]
            own: Floats = (self.lengths - self.tracked)[:, numbers].clip(0)
            if column == "own":
                return own
            if column == "calls":
                return (self.lengths[:, numbers] > 0).astype(float)
            if column == "collecting":
                collecting: Floats = np.minimum(own, self._collecting_outside[:, numbers])
                return collecting
            return np.zeros(own.shape)
        values = np.zeros((len(self.steps), len(self.processes)))
        if place in self._of_place:
            cells = self._of_place[place]
            values.ravel()[self._by_place["cell"][cells]] = self._by_place[column][cells]
        return values[:, [process.number for process in processes]]

    @functools.cached_property
    def _collecting_outside(self) -> Floats:
        """Nanoseconds in which each process collected garbage in no scope, by step."""
        times = np.zeros((len(self.steps), len(self.processes)))
        for process in self.processes:
            if len(process.ledger.collections):
                times[:, process.number] = collected(process, *self.step_edges(process))
        inside = self.sums["step"].astype(np.int64) * len(self.processes) + self.sums["process"]
        sums = np.bincount(inside, self.sums["collecting"], times.size).reshape(times.shape)
        outside: Floats = (times - sums).clip(0)
        return outside

    def work(self, processes: Sequence[Process]) -> Floats:
        """Nanoseconds of work in scopes, by step and process: in a scope that does not wait.

        With threads or tasks at once a process works while any of them does.
        """
        return self._work[:, [process.number for process in processes]]

    @functools.cached_property
    def _work(self) -> Floats:
        shape = len(self.steps), len(self.processes)
        at = self.sums["step"].astype(np.int64) * shape[1] + self.sums["process"]
        sums = np.bincount(at, self.sums["own"] - self.sums["waiting"], shape[0] * shape[1])
        work: Floats = np.minimum(sums.reshape(shape), self.tracked)
        return work

    @functools.cached_property
    def _parents(self) -> Integers:
        return np.array([place.parent for place in self.places] or [-1], np.int64)

    @functools.cached_property
    def _by_place(self) -> dict[str, NDArray[Any]]:
        """The columns of `sums` in order of place, and the cells of a matrix of its rows."""
        order = np.argsort(self.sums["place"], kind="stable")
        columns = {name: self.sums[name][order] for name, _ in SUMS}
        cells = columns["step"].astype(np.int64) * len(self.processes) + columns["process"]
        return columns | {"cell": cells}

    @functools.cached_property
    def _of_place(self) -> dict[int, slice]:
        """By place, its part of `_by_place`."""
        places, starts = np.unique(self._by_place["place"], return_index=True)
        edges = itertools.pairwise([*starts.tolist(), len(self.sums)])
        return dict(zip(places.tolist(), itertools.starmap(slice, edges), strict=True))


def _is_one_of_several(process: Process) -> bool:
    """Whether a process has started ranks, or is in a process group with others."""
    groups = (e.get("ranks") for e in process.ledger.events if e["event"] == PROCESS_GROUP)
    is_in_group = any(ranks != [[0, 1, 1]] for ranks in groups)
    return is_in_group or bool(_groups_started(process))


def _groups_started(process: Process) -> frozenset[str]:
    events = process.ledger.events
    return frozenset(str(e.get("group")) for e in events if e["event"] == STARTS_RANKS)


def by_name(processes: Iterable[Process]) -> dict[str, list[Process]]:
    """The processes of each worker; a worker that was restarted has several."""
    by_worker: dict[str, list[Process]] = {}
    for process in processes:
        by_worker.setdefault(process.name, []).append(process)
    return by_worker


def of_ranks(columns: Floats, ranks: Iterable[Sequence[Process]]) -> Floats:
    """Add up the columns of the processes of each rank, to one column per rank."""
    bounds = np.cumsum([0, *map(len, ranks)])[:-1]
    totals: Floats = np.add.reduceat(columns, bounds, axis=1)
    return totals


def of_others(times: Floats) -> Floats:
    """For each step and rank the median of the other ranks.

    Args:
        times: by step and rank, of at least two ranks.
    """
    order = np.argsort(times, axis=1, kind="stable")
    sorted_times = np.take_along_axis(times, order, axis=1)
    place = np.argsort(order, axis=1, kind="stable")
    others = times.shape[1] - 1
    middle: Floats = np.zeros(times.shape)
    for position in ((others - 1) // 2, others // 2):
        # without the rank itself, those behind it move up
        values = np.take_along_axis(sorted_times, position + (place <= position), axis=1)
        middle += values / 2
    return middle


def imbalance(work: Floats, presence: NDArray[np.bool_]) -> float:
    """The most work of any rank to the mean of the ranks, in the median step.

    Args:
        work: by step and rank.
        presence: the same, whether the rank was in that step: one that was killed is not idle.
    """
    mean = np.where(presence, work, 0.0).sum(axis=1) / np.maximum(1, presence.sum(axis=1))
    busy = mean > 0
    return float(np.median(work[busy].max(axis=1) / mean[busy])) if busy.any() else 1.0


def rows_of(process: Process) -> tuple[Integers, Integers, Integers, Floats, Floats]:
    """The spans of a process with its folds and open calls: place, start, end, busy and calls.

    Places are positions in `Run.places`, times those of the run. Scopes around whole threads are
    left out: a thread may wait where nothing marks it. So are the waits of helper threads, which
    the process does not wait for as long as another thread works.
    """
    ledger = process.ledger
    spans, folds, open_calls = ledger.spans, ledger.folds, ledger.open if not ledger.ended else None
    start, end = spans["start"], spans["end"]
    place, track = spans["place"], spans["track"]
    busy, calls = (end - start).astype(float), np.ones(len(spans))
    if len(folds):
        track = np.concatenate([track, folds["track"]])
        place = np.concatenate([place, folds["place"]])
        start = np.concatenate([start, folds["start"]])
        end = np.concatenate([end, folds["end"]])
        busy = np.concatenate([busy, folds["busy"].astype(float)])
        calls = np.concatenate([calls, folds["count"].astype(float)])
    if open_calls is not None and len(open_calls):
        last = np.full(len(open_calls), ledger.last)
        place = np.concatenate([place, open_calls["place"]])
        start = np.concatenate([start, open_calls["start"]])
        end = np.concatenate([end, np.maximum(last, open_calls["start"])])
        busy = np.concatenate([busy, (last - open_calls["start"]).clip(0).astype(float)])
        calls = np.concatenate([calls, np.ones(len(open_calls))])
    offset = ledger.offset
    threads = np.array([p.key.endswith(THREAD) for p in ledger.places], bool)
    mask = ~threads[place]
    working = working_track(ledger) if threads.any() else None
    if working is not None:
        helps = np.zeros(len(place), bool)
        helps[: len(track)] = track != working  # the thread of an open call is not known
        mask &= ~(helps & _waits_of_helpers(ledger)[place])
    rows = process.places[place], start + offset, end + offset, busy, calls
    return rows[0][mask], rows[1][mask], rows[2][mask], rows[3][mask], rows[4][mask]


def _waits_of_helpers(ledger: Ledger) -> NDArray[np.bool_]:
    """Whether scopes at each place of a ledger wait in a thread that has a scope."""
    waits, threads = [False], [False]
    for place in ledger.places[1:]:  # a parent stands before its children
        waits.append(waits[place.parent] or place.waits_for not in (None, NOTHING))
        threads.append(threads[place.parent] or place.key.endswith(THREAD))
    flags: NDArray[np.bool_] = np.array(waits) & np.array(threads)
    return flags


def _in_steps(
    start: Integers, end: Integers, first: Integers, last: Integers, called: bool
) -> tuple[Integers, Integers, Integers, Integers]:
    """Cut spans at the edges of steps.

    Args:
        called: whether the process marks no steps, so that a span around some of them is a call
            that takes long. Where it lasts for half of all steps, it is a loop that says nothing.

    Returns:
        For each piece: the span's position, the step's, and where the piece begins and ends. Other
        spans have two at most: in the step in which they begin, and in that in which they end. They
        say nothing about steps that they are around.
    """
    steps = np.flatnonzero(last > first)  # a rank may not have marked a step
    order = steps[np.argsort(first[steps], kind="stable")]
    begins, ends = first[order], last[order]
    if not len(order):
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing, nothing
    low = np.searchsorted(ends, start, "right")  # the first step that ends after it has begun
    high = np.searchsorted(begins, end, "left") - 1  # the last one that begins before it ends
    # a call that took no time still counts
    at = np.minimum(low, len(begins) - 1)
    high = np.where((start == end) & (low < len(begins)) & (begins[at] <= start), low, high)
    starting = np.flatnonzero((low <= high) & ((start >= begins[at]) | (end <= ends[at])))
    ending = np.flatnonzero((low < high) & (end <= ends[high]))
    span = np.concatenate([starting, ending])
    position = np.concatenate([low[starting], high[ending]])
    if called:
        is_call = (2 * (end - start) < ends[-1] - begins[0]) & (low < high - 1)
        is_call &= (start >= begins[at]) | (end <= ends[at])
        long = np.flatnonzero(is_call)
        counts = (high - low - 1)[long]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        span = np.concatenate([span, np.repeat(long, counts)])
        position = np.concatenate([position, np.repeat(low[long] + 1, counts) + offsets])
    return (
        span,
        order[position],
        np.maximum(start[span], begins[position]),
        np.minimum(end[span], ends[position]),
    )


def _sums(
    process: Process, first: Integers, last: Integers, parents: Integers, called: bool = False
) -> NDArray[np.void]:
    place, start, end, busy, calls = rows_of(process)
    span, step, begin, stop = _in_steps(start, end, first, last, called)
    length = np.maximum(1, end[span] - start[span])
    share = np.where(end[span] > start[span], (stop - begin) / length, 1.0)
    span_place = place[span]
    mask = span_place >= 0
    span, step, share, span_place = span[mask], step[mask], share[mask], span_place[mask]
    most = int(span_place.max(initial=0)) + 1
    codes, at = np.unique(step * most + span_place, return_inverse=True)
    rows = np.zeros(len(codes), SUMS)
    rows["process"] = process.number
    rows["step"], rows["place"] = codes // most, codes % most
    rows["busy"] = np.bincount(at, busy[span] * share, len(codes))
    rows["calls"] = np.bincount(at, calls[span] * share, len(codes))
    above = parents[rows["place"]]
    around = codes // most * most + above
    where = np.searchsorted(codes, around)
    where = np.minimum(where, max(0, len(codes) - 1))
    has_outer = (above >= 0) & (codes[where] == around) if len(codes) else np.zeros(0, bool)

    def without_inner(sums: Floats) -> Floats:
        own = sums.copy()
        np.subtract.at(own, where[has_outer], sums[has_outer])
        least: Floats = own.clip(0)
        return least

    rows["own"] = without_inner(rows["busy"])
    if len(process.ledger.collections):
        pauses = collected(process, begin[mask], stop[mask]) * (busy[span] / length[mask])
        rows["collecting"] = without_inner(np.bincount(at, pauses, len(codes)).astype(float))
    return rows


def time_at(
    process: Process, places: NDArray[np.bool_], tracks: Sequence[int], begin: int, end: int
) -> float:
    """Nanoseconds that a process spends at some places, on some tracks together.

    Args:
        places: for each place of the run whether it counts.
        begin: when to begin, on the ledger's clock.
    """
    numbers = np.flatnonzero(places[process.places] & (process.places >= 0))

    def chosen(rows: NDArray[np.void]) -> NDArray[np.void]:
        mask = np.isin(rows["track"], tracks) & np.isin(rows["place"], numbers)
        return rows[mask & (rows["start"] < end) & (rows["end"] > begin)]

    spans, folds = (
        np.sort(chosen(process.ledger.spans), order="start"),
        chosen(process.ledger.folds),
    )
    starts, ends = spans["start"].clip(begin, end), spans["end"].clip(begin, end)
    # one may be inside another
    last_ends = np.maximum.accumulate(np.concatenate([[begin], ends]))[:-1]
    inside = folds["end"].clip(begin, end) - folds["start"].clip(begin, end)
    shares = inside / (folds["end"] - folds["start"]).clip(1)
    return float(
        (ends - np.maximum(starts, last_ends)).clip(0).sum() + (folds["busy"] * shares).sum()
    )


def _own_tracks(ledger: Ledger) -> list[int]:
    tracks = list(enumerate(ledger.tracks))
    if ledger.marker is None:
        return [number for number, track in tracks if track.name == MAIN_TRACK]
    marker = ledger.tracks[ledger.marker]
    of_thread = marker.thread, marker.native
    return [number for number, track in tracks if (track.thread, track.native) == of_thread]


def working_track(ledger: Ledger) -> int | None:
    """The ledger's number of the thread that works, of those that it counts; ``None`` without any.

    The one that marks the steps, unless it does nothing but wait for others. Else the one that
    works longest in scopes, or the main thread if none does.
    """
    counted = np.unique(ledger.threads["track"])
    if not len(counted):
        return None
    # what its waits take is no work: an actor's method may wait for the thread that works
    waits = [False]
    outer_waits = [False]
    top = [False]
    for place in ledger.places[1:]:  # a parent stands before its children
        around = waits[place.parent]
        waits.append(around or place.waits_for not in (None, NOTHING))
        outer_waits.append(waits[-1] and not around)
        top.append(place.depth == 1)
    busy, waiting = np.zeros((2, len(ledger.tracks)))
    for rows, took in (
        (ledger.spans, ledger.spans["end"] - ledger.spans["start"]),
        (ledger.folds, ledger.folds["busy"]),
    ):
        for times, counts in ((busy, top), (waiting, outer_waits)):
            times += np.bincount(rows["track"], took * np.array(counts)[rows["place"]], len(times))
    marker, edges = ledger.marker, ledger.edges["time"]
    if marker is not None and marker in counted and len(edges):
        # the one that runs an event loop waits for its own tasks
        has_tasks = any(ledger.tracks[number].task for number in _own_tracks(ledger))
        if has_tasks or waiting[marker] < _ONLY_WAITS * np.ptp(edges):
            return marker
    works = (busy - waiting)[counted]
    if works.any():
        return int(counted[works.argmax()])
    main = ledger.main
    return int(main["track"][0]) if len(main) else int(counted[0])


def waited(process: Process, start: int, end: int) -> float | None:
    """What share of some time a process's working thread waited for a processor, ready to run.

    ``None`` if the ledger does not tell.
    """
    rows = process.ledger.threads
    rows = rows[rows["track"] == working_track(process.ledger)]
    times = thread_times(process, rows, start, end)
    if times is None:
        return None
    return float(min(1.0, max(0.0, times.ready / (times.end - times.begin))))


class ThreadTimes(NamedTuple):
    """For how many nanoseconds a thread ran between two times, and was ready to."""

    begin: int
    end: int
    ran: float
    ready: float


def thread_times(
    process: Process, rows: NDArray[np.void], start: int, end: int
) -> ThreadTimes | None:
    """What a ledger tells of a thread in some time; ``None`` if nothing.

    The ledger notes it once a second, so a short loop may lie between two notes.
    """
    times = rows["time"] + process.ledger.offset
    if len(rows) < 2:
        return None
    begin, until = np.clip([start, end], times[0], times[-1]).tolist()
    if begin >= until:
        return None
    ran, ready = (
        float(np.diff(np.interp([begin, until], times, rows[column])).item())
        for column in ("ran", "ready")
    )
    return ThreadTimes(begin, until, ran, ready)


def collected(process: Process, begin: Integers, end: Integers) -> Floats:
    """For how many nanoseconds the garbage collector stopped a process between given times."""
    rows = process.ledger.collections
    if not len(rows):
        return np.zeros(len(begin))
    starts, lengths = rows["start"] + process.ledger.offset, rows["end"] - rows["start"]
    earlier = np.concatenate([[0], np.cumsum(lengths)])

    def until(times: Integers) -> Integers:
        last = np.searchsorted(starts, times, "right") - 1  # the last one that has begun
        of_last = np.minimum(times - starts[last], lengths[last])
        sums: Integers = np.where(last >= 0, earlier[last] + of_last, 0)
        return sums

    return (until(end) - until(begin)).astype(float)


def _covered(
    process: Process, first: Integers, last: Integers, parents: Integers, called: bool
) -> Floats:
    """Nanoseconds of each step in which the process was in any scope."""
    place, start, end, busy, _ = rows_of(process)
    span, step, begin, stop = _in_steps(start, end, first, last, called)
    # one around all its steps says nothing, here or about what is inside
    telling = np.zeros(len(start), bool)
    telling[span] = True
    whole = busy >= end - start
    times = np.zeros(len(first))
    keep = np.flatnonzero(whole[span])
    # Steps overlap in no process, so one sweep serves all: a span adds what lies after all ends
    # before it.
    keep = keep[np.argsort(begin[keep], kind="stable")]
    if len(keep):
        last_ends = np.maximum.accumulate(stop[keep])
        before = np.concatenate([begin[keep[:1]], last_ends[:-1]])
        extra = (stop[keep] - np.maximum(begin[keep], before)).clip(0)
        times += np.bincount(step[keep], extra, len(first))
    folds = np.flatnonzero(telling & ~whole)
    if len(folds):
        spans = np.flatnonzero(telling & whole)
        spans = spans[np.argsort(start[spans], kind="stable")]
        last_ends = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], end[spans]]))
        around = last_ends[np.searchsorted(start[spans], start[folds], "right")] >= end[folds]
        folds = folds[~around]
        inner = np.isin(parents[place[folds]], place[folds]) & (parents[place[folds]] >= 0)
        outer = np.zeros(len(start), bool)
        outer[folds[~inner]] = True
        share = busy[span] / np.maximum(1, end[span] - start[span]) * (stop - begin)
        times += np.bincount(step, np.where(outer[span], share, 0.0), len(first))
    totals: Floats = np.minimum(times, (last - first).clip(0))
    return totals

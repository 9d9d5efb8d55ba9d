"""Finds the lines of code that a place's time goes to, from samples of stacks.

Compares a place of a process with the same place of the other ranks of its group, or a place in
some steps with the same place in the other steps. The functions that take longer lead down the
stacks to one line.

The words are in `gpuprof._report.stacks`.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import comparable
from gpuprof._analysis.causes import Finding
from gpuprof._analysis.loop import BETWEEN_CALLS, BETWEEN_STEPS, NAMES, Loop
from gpuprof._analysis.run import OUTSIDE, Floats, Process, Run, by_name, rows_of
from gpuprof._analysis.stragglers import ALL
from gpuprof._artifacts import stacks as artifacts
from gpuprof._artifacts.ledger import Ledger
from gpuprof._artifacts.stacks import Function
from gpuprof._session.instruments.threads import POOL_RESULT, THREAD
from gpuprof._session.stacks import LIBRARY
from gpuprof.errors import OutputError

Integers = NDArray[np.int64]
Kind = Literal["extra", "most", "helpers"]
Frame = tuple[Function, int]
Stack = tuple[Frame, ...]
"""A stack from the outermost function on, with the line in each."""

Key = TypeVar("Key", bound=Hashable)
_Rows = Sequence[Sequence[tuple[Stack, float]]]
"""Stacks and their seconds: first of the suspect, then of each peer."""

LOADER, POOL = "loader", "pool"
"""What the helpers of a process are; see `Run.helpers`."""
WARM_UP = "warm-up"
"""The scope of a line that stands for all that a process does in its first steps."""
COMPARED = ("rank", "drift", "only this rank", "imbalance")
"""Causes of ranks that take longer than the others."""
_ELSEWHERE = ("garbage collection", "node", "leak")
"""Causes that are not in the place."""
_IDLE = re.compile(
    r"threading\.(Condition\.wait|Thread\.(join|_wait_for_tstate_lock))|queue\.\w*Queue\.get"
    r"|ray\._private\.worker\.Worker\.main_loop|ray\.train\..*\.ThreadRunner\._monitor_target"
    r"|selectors\.\w+\.select|socket\.socket\.accept|concurrent\.futures\.thread\._worker"
)
"""Functions in which a library's own threads wait for work."""
_OTHERS = re.compile(
    r"(multiprocessing\.(connection|queues|synchronize|pool)|selectors|socket|ssl|queue|threading"
    r"|asyncio\.\w+|zmq\.\w+)\."
)
"""The beginnings of names of functions in which a process waits for another one."""
_FORKED, _MAIN = "multiprocessing.process.BaseProcess._bootstrap", "MainThread"
"""The function in which a process of multiprocessing begins, and the name of its first thread."""
_LEFT_OUT = re.compile(
    r"gpuprof(_timing)?(\.|$)|ray\.util\.tracing\.|torch\.distributed\.c10d_logger$"
    r"|torch\.utils\._contextlib$|contextlib$"
)
"""Modules whose functions only call what is meant, as those around each method of an actor."""
_LEAST_SAMPLES = 20
"""Samples that a place needs before a share of it is printed."""
_DEVIATIONS = 3.0
"""How many standard deviations of samples a share must be above nothing."""
MOSTLY_WAITS = 0.5
"""Share of a place's time from which a process mostly waits there for another one."""
_LEAST_SEEN = 0.5
"""Share of a place's time that samples must have seen to stand for all of it."""
_LEAST_SHARE = 0.2
"""Share of a place's time above which a line is named."""
_GOES_ON = 0.5
"""Share of a function's time above which a function that it calls stands for it."""
_LEADS_TO = 0.8
"""Share of what a process does elsewhere above which a line is only the way there."""
_MOST_PEERS = 32
"""Peers to compare a rank with; of more, an evenly spread selection."""
_LEAST_BUSY = 0.1
"""Share of a thread's samples from which a line of a run without steps is told."""
_MOST_LINES = 3
"""Lines to print for the places that bound steps."""
LEAST_QUIET = 20.0
"""Seconds without an end of a scope or step from which a job may stand still."""
_LEAST_PLACE = 0.05
"""Share of the loop above which a place that bounds steps gets a line."""


@attrs.frozen
class Line:
    """A line of code, and its share of a place's time.

    Args:
        kind: ``extra``: of what the place takes longer than elsewhere; ``most``: of all its time;
            ``helpers``: of all that the processes do that run functions for this one.
        worker: the worker in which it was seen; of helpers, the name of all of them.
        scope: the place's name, or `WARM_UP`.
        steps: how many steps were looked at.
        seconds: what that place takes, or takes longer, in each of them, in this worker.
        share: of those seconds, in the function that `name` says, called from this line or others
            of the same function.
        name: the function that takes the time, with its module's name.
        file: the path of the source with the line.
        line: its number; the one with the most of it.
        of_line: share of the seconds on this line alone.
        samples: how many samples saw the place.
        waits: share of the place's time in which the process waits for another one; 0 of `extra`.
    """

    kind: Kind
    worker: str
    scope: str
    steps: int
    seconds: float
    share: float
    name: str
    file: str
    line: int
    of_line: float
    samples: int
    waits: float = 0.0


@attrs.frozen
class Folded:
    """The sampled stacks of a place of a process, in some steps.

    Args:
        seconds: by stack, the seconds a step.
        samples: the number of samples in the place.
        steps: the number of steps.
        took: the seconds a step that the place takes; 0 if that is not known.
    """

    seconds: Mapping[Stack, float]
    samples: int
    steps: int
    took: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all stacks a step."""
        return sum(self.seconds.values())

    def like(self, other: Folded) -> Folded:
        """Without the stacks with a function that another process never has."""
        functions = {function for stack in other.seconds for function, _ in stack}
        return self._only(
            {
                stack: took
                for stack, took in self.seconds.items()
                if all(function in functions for function, _ in stack)
            }
        )

    def working(self) -> Folded:
        """Without the stacks in which the process waits for another one."""
        return self._only(
            {
                stack: took
                for stack, took in self.seconds.items()
                if not stack or not _OTHERS.match(stack[-1][0].full_name)
            }
        )

    def _only(self, seconds: Mapping[Stack, float]) -> Folded:
        share = sum(seconds.values()) / self.total if self.total else 0.0
        return Folded(seconds, round(self.samples * share), self.steps)


class Samples:
    """The samples of a process, by their time and stack.

    Args:
        offset: the nanoseconds from the process's clock to the run's.
    """

    def __init__(self, read: artifacts.Stacks, offset: int) -> None:
        self._read = read
        rows = read.samples
        self._ends = rows["end"] + offset
        apart = (rows["end"] - rows["start"]) // rows["samples"].clip(1)
        # a sample tells of its nanosecond, and stands for the time since the one before
        self._starts = self._ends - 1 - apart * (rows["samples"].clip(1) - 1)
        self._stacks = numbered(read)
        self._waits = np.array([_waits(stack) for stack in self._stacks])[rows["stack"]]
        self._idle = np.array([is_idle(stack) for stack in self._stacks])[rows["stack"]]

    def of_tracks(
        self, tracks: Sequence[int], times: tuple[Integers, Integers], idle: bool = False
    ) -> Folded:
        """The samples of threads between the given times, in whatever place.

        Args:
            idle: whether those count in which only libraries wait for work.
            times: starts and ends that do not overlap, in order.
        """
        return self._fold(np.isin(self._read.samples["track"], tracks), times, idle)

    def _inside(self, times: tuple[Integers, Integers]) -> Floats:
        """The share of each row's samples that were taken between the given times."""
        inside = _covered(self._ends, *times) - _covered(self._starts, *times)
        shares: Floats = inside / (self._ends - self._starts)
        return shares

    def _fold(
        self, chosen: NDArray[np.bool_], times: tuple[Integers, Integers], idle: bool = False
    ) -> Folded:
        rows, shares = self._read.samples, self._inside(times)
        chosen = chosen & (idle | ~self._idle) & (shares > 0)
        took = shares * (rows["end"] - rows["start"]) / 1e9
        seconds: dict[Stack, float] = {}
        steps = max(1, int((times[1] > times[0]).sum()))
        for number in np.unique(rows["stack"][chosen]).tolist():
            mine = chosen & (rows["stack"] == number)
            stack = self._stacks[number]
            seconds[stack] = seconds.get(stack, 0.0) + float(took[mine].sum()) / steps
        return Folded(seconds, round(float((rows["samples"] * shares)[chosen].sum())), steps)


class PlacedSamples(Samples):
    """The samples of a process of the run, by their place as well.

    Args:
        run: the process's.
        process: it.
    """

    def __init__(self, run: Run, process: Process, read: artifacts.Stacks) -> None:
        super().__init__(read, process.ledger.offset)
        self._run = run
        self._process = process
        self._places = process.places[read.samples["place"]]
        self._in_tasks()
        self._around_steps()

    @property
    def places(self) -> list[int]:
        """Where any sample is."""
        return sorted({OUTSIDE, *self._places[self._places >= 0].tolist()})

    def folded(
        self, places: Sequence[int], times: tuple[Integers, Integers], idle: bool = False
    ) -> Folded:
        """The samples in the given places, between the given times.

        Args:
            idle: whether those count in which only libraries wait for work.
            places: positions in `Run.places`; `OUTSIDE`: outside of all scopes, in the thread that
                marks the steps. If that is not known, in the threads that have scopes and the main
                one or, while these wait, in the others.
            times: starts and ends that do not overlap, in order.
        """
        rows = self._read.samples
        inside = self._inside(times)
        chosen = np.isin(self._places, [place for place in places if place != OUTSIDE])
        if OUTSIDE in places:
            outside = (self._places < 0) & np.isin(rows["track"], self._tracks)
            took = inside * (rows["end"] - rows["start"])
            works = outside & ~self._waits
            waits = outside & self._waits & ~self._idle
            threads = np.isin(self._places, self._threads)
            is_known = self._process.ledger.marker is not None or not took[threads].any()
            if not is_known and took[works].sum() < took[waits].sum():
                outside = works | threads
            chosen |= outside
        return self._fold(chosen, times, idle)

    @functools.cached_property
    def _threads(self) -> list[int]:
        """The places of whole threads: a thread that has not ended has no span, only samples."""
        places = enumerate(self._run.places)
        return [at for at, place in places if place.parent < 0 and place.name.endswith(THREAD)]

    @functools.cached_property
    def _tracks(self) -> Integers:
        ledger = self._process.ledger
        own = np.array(self._run.own_tracks[self._process.number])
        if ledger.marker is not None:
            return own
        return np.union1d(own, np.union1d(ledger.spans["track"], ledger.folds["track"]))

    def _in_tasks(self) -> None:
        """Set the places of asyncio tasks from their spans: a sample does not see their scopes."""
        ledger, rows = self._process.ledger, self._read.samples
        tasks = [number for number, track in enumerate(ledger.tracks) if track.task]
        for track in np.intersect1d(tasks, rows["track"]).tolist():
            mine = np.flatnonzero(rows["track"] == track)
            spans = ledger.spans[ledger.spans["track"] == track]
            depths = np.array([ledger.places[place].depth for place in spans["place"].tolist()])
            for depth in np.unique(depths).tolist():  # the innermost counts
                level = spans[depths == depth]
                level = level[np.argsort(level["start"], kind="stable")]
                at = np.searchsorted(level["start"], rows["end"][mine], "right") - 1
                inside = (at >= 0) & (rows["end"][mine] <= level["end"][at])
                places = self._process.places[level["place"][at[inside]]]
                self._places[mine[inside]] = places

    def _around_steps(self) -> None:
        """Put samples outside whose scope is around whole steps, as the path does."""
        begins, ends = self._run.step_edges(self._process)
        begins, ends = np.sort(begins[ends > begins]), np.sort(ends[ends > begins])
        place, start, end, busy, _ = rows_of(self._process)
        first, last = np.searchsorted(begins, start, "right"), np.searchsorted(ends, end) - 1
        for at in np.flatnonzero((busy >= end - start) & (first <= last)).tolist():
            inside = (self._starts >= begins[first[at]]) & (self._ends <= ends[last[at]])
            self._places[inside & (self._places == place[at])] = OUTSIDE


class Code:
    """Finds lines of code for places of a run.

    Args:
        loop: the run's.

    Attributes:
        problems: a sentence for each file of samples that cannot be read.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._run = loop.run
        self._samples: dict[int, PlacedSamples | None] = {}
        self.problems: list[str] = []

    def extra(
        self,
        worker: str,
        group: str,
        scope: str,
        works_only: bool = False,
        seconds: float = 0.0,
    ) -> Line | None:
        """The line that makes a rank slower in a place than the other ranks of its group.

        Args:
            seconds: how much longer it takes in a step, if more is known than the place's times:
                others may do something else there.
            works_only: whether to leave out what it does while it waits for another process; of
                processes that their parent may kill at its end.
        """
        ranks = comparable.members(self._run, group)
        if works_only:
            ranks = by_name(self._run.groups[group])
        mine, others = ranks.pop(worker, []), list(ranks.values())
        if not mine or not others:
            return None
        places = self._places(scope)
        peers = [others[n * len(others) // _MOST_PEERS] for n in range(_MOST_PEERS)]
        peers = peers if len(others) > _MOST_PEERS else others
        own = self._folded(mine[-1], places)
        peer_samples = [self._folded(rank[-1], places) for rank in peers]
        with_samples = [peer for peer in peer_samples if peer is not None]
        if own is None or not with_samples:
            return None
        if works_only:
            own, with_samples = own.working(), [peer.working() for peer in with_samples]
        if seconds:
            with_samples = [peer.like(own) for peer in with_samples]
        return self._line("extra", mine[-1], scope, own, with_samples, seconds)

    def most(self, process: Process, scope: str, but: Line | None = None) -> Line | None:
        """The line that takes most of a process's time in a place.

        Args:
            but: another one, whose time does not count: then it must be the user's own.
        """
        own = self._folded(process, self._places(scope))
        if own is None:
            return None
        if but is None:
            line = self._line("most", process, scope, own, [])
            waits = 1 - own.working().total / own.total if own.total else 0.0
            return None if line is None else attrs.evolve(line, waits=waits)
        at = but.file, but.line
        rest = {
            stack: seconds
            for stack, seconds in own.seconds.items()
            if not any((function.file, line) == at for function, line in stack)
        }
        left = sum(rest.values()) / own.total if own.total else 0.0
        folded = Folded(rest, round(own.samples * left), own.steps)
        line = self._line("most", process, scope, folded, [])
        if line is None or line.share * left < _LEAST_SHARE or LIBRARY.search(line.file):
            return None
        return attrs.evolve(
            line, seconds=but.seconds, share=line.share * left, of_line=line.of_line * left
        )

    def outside(self, process: Process) -> Folded | None:
        """What a process does in steps in no scope; ``None`` without samples."""
        return self._folded(process, [OUTSIDE], idle=True)

    @property
    def durations(self) -> Floats:
        """The nanoseconds of each step that counts."""
        return self._loop.durations

    def between_steps(self, process: Process, scope: str) -> Line | None:
        """The line that takes most of a process's time between steps."""
        samples = self.samples(process)
        if samples is None:
            return None
        starts, ends = self._loop.gaps
        folded = samples.folded(self._places(scope), (starts, ends))
        took = float((ends - starts).sum()) / 1e9 / folded.steps
        return self._line("most", process, scope, attrs.evolve(folded, took=took), [])

    def of_threads(self, process: Process, name: str) -> Line | None:
        """The line that takes most of the time of a process's threads of a name."""
        samples = self.samples(process)
        if samples is None:
            return None
        tracks = _threads_of(process.ledger, name)
        folded = samples.of_tracks(tracks, self._usual_times(process))
        return self._line("most", process, name, folded, [])

    def helpers(self, process: Process, kind: str) -> Line | None:
        """The line that takes most of the time of the processes that run a process's functions.

        Args:
            kind: what these processes are, such as `LOADER`.
        """
        name = f"{process.name}-{kind}"
        seconds: Counter[Stack] = Counter()
        samples = steps = 0
        for ledger in self._run.helpers.get(name, ()):
            read = self._read(ledger)
            if read is not None:
                tracks = _threads_of(ledger, _MAIN)
                times = self._usual_times(process)
                folded = Samples(read, ledger.offset).of_tracks(tracks, times, idle=True)
                seconds.update(folded.seconds)
                samples, steps = samples + folded.samples, folded.steps
        whole = Folded(seconds, samples, steps)
        working = whole.working()
        line = _line("helpers", name, kind, working, [], dict)
        waits = 1 - working.total / whole.total if seconds else 0.0
        return None if line is None else attrs.evolve(line, waits=waits)

    def _usual_times(self, process: Process) -> tuple[Integers, Integers]:
        starts, ends = self._run.step_edges(process)
        return starts[self._loop.usual], ends[self._loop.usual]

    def in_warm_up(self) -> Line | None:
        """The line that the slowest process to warm up spends its warm-up in."""
        steps = self._run.steps
        positions = [at for at, step in enumerate(steps) if step.warm_up and step.complete]
        if not positions:
            return None
        work = self._run.work(self._run.processes)[positions].sum(axis=0)
        slowest = self._run.processes[int(np.argmax(work))]
        return self.in_steps(slowest, WARM_UP, positions)

    def growing(self, group: str, scope: str) -> Line | None:
        """The line that takes longer in the last half of the steps than in the first."""
        usual = self._loop.usual
        half = usual[-(len(usual) // 2) :]
        places = self._places(scope)
        took = {
            process.number: float(self._took(process, places)[half].sum())
            for process in self._run.groups.get(group, ())
        }
        if not took:
            return None
        return self.in_steps(self._run.processes[max(took, key=took.__getitem__)], scope, half)

    def in_steps(self, process: Process, scope: str, positions: Sequence[int]) -> Line | None:
        """The line that makes a place take longer in the given steps than in the others."""
        places = self._places(scope)
        others = sorted({*self._loop.usual} - {*positions})
        own = self._folded(process, places, positions)
        usual = self._folded(process, places, others)
        if own is None or usual is None or not others:
            return None
        return self._line("extra", process, scope, own, [usual])

    def _folded(
        self,
        process: Process,
        places: Sequence[int],
        positions: Sequence[int] | None = None,
        idle: bool = False,
    ) -> Folded | None:
        samples = self.samples(process)
        if samples is None:
            return None
        starts, ends = self._run.step_edges(process)
        chosen = self._loop.usual if positions is None else positions
        folded = samples.folded(places, (starts[chosen], ends[chosen]), idle)
        took = float(self._took(process, places)[chosen].sum())
        return attrs.evolve(folded, took=took / 1e9 / folded.steps)

    def _took(self, process: Process, places: Sequence[int]) -> Floats:
        """Nanoseconds of each step that a process spends in the given places."""
        run = self._run
        if len(places) > len(run.places):  # all of the step, in which tasks may wait side by side
            whole: Floats = run.lengths[:, process.number]
            return whole
        owns = (run.matrix("own", place, [process])[:, 0] for place in places)
        return sum(owns, np.zeros(len(run.steps)))

    def by_place(self, process: Process) -> dict[int, Mapping[Stack, float]] | None:
        """Seconds of each stack a step, in all places and outside; ``None`` without samples."""
        samples = self.samples(process)
        if samples is None:
            return None
        starts, ends = (edges[self._loop.usual] for edges in self._run.step_edges(process))
        of_places = {place: samples.folded([place], (starts, ends)) for place in samples.places}
        return {place: part.seconds for place, part in of_places.items() if part.seconds}

    def path(self, place: int) -> str:
        """The names of the scopes around a place and its own."""
        return self._run.places[place].path

    def samples(self, process: Process) -> PlacedSamples | None:
        """The samples of a process; ``None`` if it has none."""
        if process.number not in self._samples:
            read = self._read(process.ledger)
            samples = None if read is None else PlacedSamples(self._run, process, read)
            self._samples[process.number] = samples
        return self._samples[process.number]

    def _read(self, ledger: Ledger) -> artifacts.Stacks | None:
        try:
            read = artifacts.read(ledger)
        except OutputError as error:
            self.problems.append(str(error))
            return None
        if read is not None and read.problem:
            self.problems.append(read.problem)
        return read

    def process(self, name: str) -> Process | None:
        """The last start of a worker, or the driver; ``None`` for a node."""
        return next(
            (process for process in self._run.processes[::-1] if process.name == name), None
        )

    def _places(self, scope: str) -> list[int]:
        """The places that a name stands for."""
        if scope in (NAMES[OUTSIDE], BETWEEN_CALLS):
            return [OUTSIDE]
        if scope in (WARM_UP, BETWEEN_STEPS):
            return [OUTSIDE, *range(len(self._run.places))]
        waits = self._run.waiting_places
        return [
            number
            for number, place in enumerate(self._run.places)
            if place.name == scope or (scope == NAMES[ALL] and not waits[number])
        ]

    def _elsewhere(self, process: Process, scope: str) -> Mapping[Stack, float]:
        """What a process does in its steps, except in a place and the scopes inside."""
        places = self._run.places
        inside = np.isin([OUTSIDE, *range(len(places))], self._places(scope))
        for number, place in enumerate(places):  # parents come first
            inside[number + 1] |= place.parent >= 0 and inside[place.parent + 1]
        others = (np.flatnonzero(~inside) - 1).tolist()
        folded = self._folded(process, others)
        return {} if folded is None else folded.seconds

    def _line(
        self,
        kind: Kind,
        process: Process,
        scope: str,
        mine: Folded,
        others: Sequence[Folded],
        seconds: float = 0.0,
    ) -> Line | None:
        elsewhere = functools.partial(self._elsewhere, process, scope)
        return _line(kind, process.name, scope, mine, others, elsewhere, seconds)


def find(
    loop: Loop, findings: Sequence[Finding], grows: tuple[str, str]
) -> tuple[list[Line | None], list[Line], Line | None, list[str]]:
    """The lines of a run.

    Args:
        grows: the group and the place in which steps become longer; empty if they do not.

    Returns:
        The line of each finding; those of the places that bound its steps; the one that takes
        longer in the last half of the steps; and a sentence for each file of samples that cannot
        be read.
    """
    code = Code(loop)
    of_findings = [_of_finding(loop, code, finding) for finding in findings]
    pairs = {(line.worker, line.scope) for line in of_findings if line is not None}
    shares: defaultdict[tuple[int, int], float] = defaultdict(float)
    for (number, place, _), by_step in loop.shares.items():
        shares[number, place] += float(by_step.mean())
    lines: list[Line | None] = []
    places: set[tuple[str, str]] = set()
    for (number, place), share in sorted(shares.items(), key=lambda item: -item[1]):
        process, scope = loop.run.processes[number], loop.name(place, number)
        is_known = (process.name, scope) in pairs or (process.group, scope) in places
        if share >= _LEAST_PLACE and not is_known and len(places) < _MOST_LINES:
            places.add((process.group, scope))
            line = code.most(process, scope)
            second = None if line is None else code.most(process, scope, but=line)
            lines += [line, second]
    lines.append(code.in_warm_up())
    growing = code.growing(*grows) if all(grows) else None
    return of_findings, [line for line in lines if line is not None], growing, code.problems


def _of_finding(loop: Loop, code: Code, finding: Finding) -> Line | None:
    if finding.cause in COMPARED:
        works_only = any(finding.facts.worked)
        return code.extra(finding.worker, finding.group, finding.scope, works_only)
    if finding.cause == "late start":
        outside = NAMES[OUTSIDE]
        return code.extra(finding.worker, finding.group, outside, seconds=finding.seconds)
    process = code.process(finding.worker)
    if process is not None and finding.cause == "processor":
        return code.helpers(process, LOADER) or code.helpers(process, POOL)
    if process is None or finding.cause in _ELSEWHERE:
        return None
    if finding.scope == BETWEEN_STEPS:
        return code.between_steps(process, finding.scope)
    if finding.cause == "interpreter":
        usage = finding.facts.usage
        thread = None if usage is None else usage.thread
        return None if thread is None else code.of_threads(process, thread.name)
    if finding.cause == "data":
        kind = POOL if finding.scope == POOL_RESULT else LOADER
        if (of_helpers := code.helpers(process, kind)) is not None:
            return of_helpers
    if finding.facts.at:
        numbers = frozenset(finding.facts.at)
        steps = loop.run.steps
        at = [position for position in loop.usual if steps[position].number in numbers]
        return code.in_steps(process, finding.scope, at)
    return code.most(process, finding.scope)


def _line(
    kind: Kind,
    worker: str,
    scope: str,
    mine: Folded,
    others: Sequence[Folded],
    elsewhere: Callable[[], Mapping[Stack, float]],
    seconds: float = 0.0,
) -> Line | None:
    """The line with most of the extra time of a place, compared with its peers' median.

    Args:
        elsewhere: what the process does in other places, in seconds by stack.
        seconds: the extra time, if more is known than the times of the place.
    """
    total = mine.total - _median([other.total for other in others])
    if seconds:  # of which samples may have seen a part
        total = min(total, seconds) if total >= _LEAST_SHARE * seconds else seconds
    if mine.samples < _LEAST_SAMPLES or total <= 0:
        return None
    took = mine.took - _median([other.took for other in others])
    rows = [list(side.seconds.items()) for side in (mine, *others)]
    hottest = _hottest(rows, total, elsewhere())
    if hottest is None:
        return None
    longer = hottest.seconds
    # the number of samples of equal steps varies as if each came by itself
    rate = _median([other.total / max(1, other.samples) for other in others])
    variance = hottest.own * mine.total / mine.samples + (hottest.own - longer) * rate
    if not seconds and total < _LEAST_SEEN * took:  # such as a task that is suspended in the place
        total = took
    if longer < _LEAST_SHARE * total or longer < _DEVIATIONS * variance**0.5:
        return None
    return Line(
        kind,
        worker,
        scope,
        mine.steps,
        total,
        min(1.0, longer / total),
        hottest.name,
        hottest.function.file,
        hottest.line,
        min(1.0, hottest.of_line / total),
        mine.samples,
    )


@attrs.frozen
class _Hottest:
    """Where most of a difference is.

    Args:
        function: the function that contains the line.
        line: the line's number.
        name: the function that takes the time, which the line may call.
        seconds: how much longer that function takes than in the peers.
        of_line: how much longer the line takes.
        own: the seconds that the function takes in the suspect.
    """

    function: Function
    line: int
    name: str
    seconds: float
    of_line: float
    own: float


def _hottest(rows: _Rows, total: float, elsewhere: Mapping[Stack, float]) -> _Hottest | None:
    """Go down to the function with most of the difference, then up to the user's own line.

    A line of the user's that also leads to nearly all that the process does elsewhere, such as
    ``trainer.train()``, says nothing.
    """
    path, levels = _down(rows, total)
    if not path:
        return None
    if not any(map(_is_users, path)):
        # a library that does many things at once: the user can change the user's own part of them
        users = _with_users(levels[-1], len(path))
        of_path, of_users = (
            sum(_more(part, functools.partial(_function, depth=len(path))).values())
            for part in (levels[-1], users)
        )
        if of_path >= _GOES_ON * total and of_users >= _LEAST_SHARE * total:
            users_path, users_levels = _down(users, of_users)
            if any(map(_is_users, users_path)):
                path, levels = users_path, users_levels
    own = [depth for depth, function in enumerate(path) if _is_users(function)]
    depth = own[-1] if own else len(path) - 1
    lines = _more(levels[depth], functools.partial(_line_of, depth=depth))
    line = max(lines, key=lines.__getitem__)
    if depth < len(path) - 1 and _leads_to(elsewhere, path[: depth + 1], line):
        depth = len(path) - 1
        lines = _more(levels[depth], functools.partial(_line_of, depth=depth))
        line = max(lines, key=lines.__getitem__)
    function, rows = path[depth], levels[depth]
    seconds = sum(lines.values())
    if lines[line] < _GOES_ON * seconds:  # a loop of many lines
        return _Hottest(function, line, function.full_name, seconds, lines[line], _first(rows))
    rows = _only(rows, functools.partial(_line_of, depth=depth), line)
    callees = _more(rows, functools.partial(_function, depth=depth + 1))
    most = max(callees, key=callees.__getitem__, default=None)
    if most is None or callees[most] < _GOES_ON * lines[line]:
        return _Hottest(function, line, function.full_name, lines[line], lines[line], _first(rows))
    rows = _only(rows, functools.partial(_function, depth=depth + 1), most)
    return _Hottest(function, line, most.full_name, callees[most], lines[line], _first(rows))


def _down(rows: _Rows, total: float) -> tuple[list[Function], list[_Rows]]:
    """The functions that lead to most of a difference, and the rows that go through each."""
    path: list[Function] = []
    levels: list[_Rows] = []
    while True:
        inside = _more(rows, functools.partial(_function, depth=len(path)))
        most = max(inside, key=inside.__getitem__, default=None)
        if most is None or inside[most] < _GOES_ON * total:
            return path, levels
        rows = _only(rows, functools.partial(_function, depth=len(path)), most)
        path.append(most)
        levels.append(rows)


def _with_users(rows: _Rows, depth: int) -> _Rows:
    """The rows whose stacks have a function of the user's from a depth on."""
    return [
        [(stack, seconds) for stack, seconds in part if any(_is_users(f) for f, _ in stack[depth:])]
        for part in rows
    ]


def _is_users(function: Function) -> bool:
    return not LIBRARY.search(function.file)


def _leads_to(elsewhere: Mapping[Stack, float], path: Sequence[Function], line: int) -> bool:
    """Whether nearly all stacks of a path's thread go through its last function on that line."""
    whole = through = 0.0
    for stack, seconds in elsewhere.items():
        functions = [function for function, _ in stack[: len(path)]]
        if functions[:1] == path[:1]:
            whole += seconds
            if functions == path and stack[len(path) - 1][1] == line:
                through += seconds
    return whole > 0 and through >= _LEADS_TO * whole


def numbered(read: artifacts.Stacks) -> list[Stack]:
    """The stacks of a process by number, without functions of `_LEFT_OUT`.

    Those of a fork begin with its first own function; before, there are those of its parent.
    """
    stacks: list[Stack] = [()]
    for caller, number, line in read.stacks[1:].tolist():
        function = read.functions[number]
        if _LEFT_OUT.match(function.module):
            stacks.append(stacks[caller])
        elif function.full_name == _FORKED:
            stacks.append(((function, line),))
        else:
            stacks.append((*stacks[caller], (function, line)))
    return stacks


def _threads_of(ledger: Ledger, name: str) -> list[int]:
    """The numbers of the threads of a name."""
    return [number for number, track in enumerate(ledger.tracks) if track.name == name]


def busiest(ledger: Ledger) -> list[tuple[Frame, float]]:
    """The user's own lines in which a process's busiest thread spends most of its samples.

    With the share of each, of one in ten at least, the largest first; at most three. A line that
    calls a library has the library's time, too.

    Raises:
        OutputError: the file cannot be read.
    """
    read = artifacts.read(ledger)
    if read is None or not len(read.samples):
        return []
    stacks = numbered(read)
    by_thread: defaultdict[int, Counter[Frame]] = defaultdict(Counter)
    for stack, track, seen in zip(
        *(read.samples[name].tolist() for name in ("stack", "track", "samples")), strict=True
    ):
        of_user = next((frame for frame in reversed(stacks[stack]) if _is_users(frame[0])), None)
        if of_user is not None:
            by_thread[track][of_user] += seen
    thread = max(by_thread.values(), key=Counter.total, default=Counter[Frame]())
    shares = [(frame, count / thread.total()) for frame, count in thread.most_common(_MOST_LINES)]
    return [(frame, share) for frame, share in shares if share >= _LEAST_BUSY]


@attrs.frozen
class Place:
    """Where processes were.

    Args:
        scope: the innermost open scope; empty for none.
        frame: the innermost line of the user's own code.
    """

    scope: str
    frame: Frame


def last_places(run: Run) -> list[tuple[Place, list[str]]]:
    """Where the processes of a run that is over were while nothing ended any more, and which.

    By the thread that was in the user's code most of that time. Processes without samples in it,
    and those whose stacks cannot be read, are left out.
    """
    if run.state == "running" or run.quiet < LEAST_QUIET:
        return []
    places: dict[Place, list[str]] = {}
    begins = {
        process.number: process.ledger.header["wall"] - process.ledger.header["monotonic"]
        for process in run.processes
    }
    over = max(begins[process.number] + process.ledger.last for process in run.processes)
    for process in run.processes:
        ledger = process.ledger
        with suppress(OutputError):
            read = artifacts.read(ledger)
            if read is None:
                continue
            ends = read.samples["end"] + begins[process.number]
            rows = read.samples[ends > over - run.quiet * 1e9]
            stacks = numbered(read)
            seen: Counter[tuple[int, Place]] = Counter()
            for stack, track, place, count in zip(
                *(rows[name].tolist() for name in ("stack", "track", "place", "samples")),
                strict=True,
            ):
                frame = next((each for each in reversed(stacks[stack]) if _is_users(each[0])), None)
                if frame is not None:
                    scope = ledger.places[place].key
                    seen[track, Place(scope, frame)] += count
            for (_, place), _ in seen.most_common(1):
                places.setdefault(place, []).append(process.name)
    return list(places.items())


def is_idle(stack: Stack) -> bool:
    """Whether a stack has only library functions and waits for work."""
    return _waits(stack) and all(LIBRARY.search(function.file) for function, _ in stack)


def _waits(stack: Stack) -> bool:
    return any(_IDLE.fullmatch(function.full_name) for function, _ in stack[-1:])


def _function(stack: Stack, depth: int) -> Function | None:
    return stack[depth][0] if depth < len(stack) else None


def _line_of(stack: Stack, depth: int) -> int:
    return stack[depth][1]


def _more(rows: _Rows, key: Callable[[Stack], Key | None]) -> dict[Key, float]:
    """By key, how much longer the suspect takes than the median of its peers."""
    sums: list[defaultdict[Key, float]] = []
    for part in rows:
        sums.append(defaultdict(float))
        for stack, seconds in part:
            value = key(stack)
            if value is not None:
                sums[-1][value] += seconds
    first, *others = sums
    return {value: first[value] - _median([other[value] for other in others]) for value in first}


def _only(rows: _Rows, key: Callable[[Stack], Key | None], value: Key) -> _Rows:
    return [[row for row in part if key(row[0]) == value] for part in rows]


def _first(rows: _Rows) -> float:
    return sum(seconds for _, seconds in rows[0])


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _covered(times: Integers, starts: Integers, ends: Integers) -> Integers:
    """By time, how much of the given stretches is before it. The stretches do not overlap."""
    starts, ends = starts[ends > starts], ends[ends > starts]
    if not len(starts):
        return np.zeros(len(times), np.int64)
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    at = np.searchsorted(starts, times, "right") - 1
    inside = np.minimum(times, ends[at]) - starts[at]
    return np.where(at < 0, 0, before[at] + inside)

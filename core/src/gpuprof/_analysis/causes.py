"""What makes a run slow: a table of causes, each a question to `Loop.saves`.

Each cause selects suspects: activities, as pairs of a process and a place. It says how long these
activities would take without the cause, and how much that must save. The rest is common to all
causes. A smaller set of activities replaces a larger one if it saves nearly as much. Suspects that
each save too little may be tried together. The grade says how sure the finding is.
`gpuprof._report.causes` writes the sentences.
"""

from __future__ import annotations

import functools
import heapq
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Literal

import attrs
import numpy as np

from gpuprof._analysis import arrivals, comparable, stragglers
from gpuprof._analysis.loop import BETWEEN_STEPS, EXPLAINED, NAMES, Loop, gaps
from gpuprof._analysis.occasions import Occasion, Occasions
from gpuprof._analysis.path import CALLS, Call, Clocks, Factors, Kind
from gpuprof._analysis.run import OUTSIDE, Floats, Process, Run, of_ranks, rows_of, waited
from gpuprof._analysis.samples import TRAINED
from gpuprof._analysis.scopes import sizes
from gpuprof._analysis.stays import OfSamples, Stays
from gpuprof._analysis.stragglers import ALL, BEFORE, Straggler
from gpuprof._analysis.usage import (
    FAULT,
    StepUsage,
    Usage,
    busy,
    by_step,
    faulted_more,
    usage_of,
    waited_more,
)
from gpuprof._analysis.waits import READS_DEVICE
from gpuprof._session.instruments.coroutines import LIMITS, SLEEP
from gpuprof._session.instruments.loaders import LOADER
from gpuprof._session.instruments.threads import THREAD

Name = Literal[
    "rank", "node", "late start", "pauses", "garbage collection", "driver", "data",
    "synchronisation", "between steps", "recurring", "once", "drift",
    "imbalance", "only this rank", "server", "processor", "interpreter", "leak",
    "tail", "sample wait", "uneven tokens", "stale samples", "full buffer", "starved trainer",
    "bottleneck",
]  # fmt: skip
OF_A_WORKER = (
    "rank",
    "late start",
    "pauses",
    "garbage collection",
    "drift",
    "only this rank",
    "processor",
    "interpreter",
)
_SLOW: tuple[Name, ...] = ("rank", "drift")
"""Causes that are a rank's work; at one of its places, if most of the saving is there."""
_OF_NO_SCOPE: tuple[Name, ...] = ("synchronisation", "driver")
"""Causes that may be in no scope: a replay leaves out all time there, also what is none of them."""
_STOPS: tuple[Name, ...] = ("garbage collection", "processor", "interpreter")
"""Causes that stop a process wherever it is."""
Grade = Literal["named", "hint"]
Doubt = Literal[
    "", "profiled", "node", "half", "starved", "outside", "busy", "several", "part", "tokens",
    "path", "small", "others", "uneven",
]  # fmt: skip
"""Why a finding is only a hint; empty if it is named, or of a kind that is always a hint."""
Unknown = Literal["", "untimed", "unexplained", "clocks"]
"""Why the path does not tell what bounds a step; empty if it does."""
Activity = tuple[int, int]
"""What a process does at a place: positions in `Run.processes` and `Run.places`, or `OUTSIDE`."""

_LARGE = 0.05
"""Share of the run from which a cause matters."""
_NAMED = 0.07
"""Share of the run that a cause must save to be named. It then matters even if the saving is off by
as much as one in ten is, in jobs whose truth is known."""
_OF_TWO = 1.2
"""How many times as long as the other a rank of two must take to be named: with less, nobody knows
which of the two is the unusual one."""
_MORE_CALLS = 1.25
"""How many times as often as its peers a slow rank must enter a scope for that to be said."""
_OF_A_BUSY_MACHINE = 1.5
"""How many times as slow a rank must be on a busy machine, which slows some more than others."""
_BOTTLENECK = 0.4
"""Share of the run that the work of a group at one place must save to be what bounds the run."""
_SINGLE = 0.8
"""Weight of a one-time pause in the order of causes: it may never happen again."""
_WEAK = 0.1
"""Share of the run that a hint must save to come before a bottleneck."""
_BETWEEN = 0.1
"""Time between the calls that ranks get, relative to these, up to which they do nothing else."""
_OVERLAPPED = 0.25
"""Share of a place's part of the path that it must save, if it took no time, to bound the run."""
_IN_A_HALF = 0.015
"""Share of the run that a lasting cause must save in each half of the run to be named."""
_NEARLY_ALL = 0.7
"""Share of what all activities save, from which some of the activities replace all of them."""
_CONTRADICTED = 0.25
"""Share of what a cause costs that it must save, where the path does not tell who waits for whom,
for the saving to be believed."""
_LEAST_SHARE = comparable.LEAST_SHARE
_MOST_OF_IT = 0.5
"""Share of a rank's excess that the garbage collector, pauses or waiting for a processor must make
up to explain the rank."""
_PART_OF_IT = 0.25
"""Share of a rank's excess that its longer waits for a processor must make up to be a doubt."""
STARVED = 0.05
"""Share of its time that a rank must wait for a processor for this to be why it may be slow."""
_LESS = 0.75
"""Share of the processor time that its peers get, of what they need, which a rank gets at most if
its own processors are to blame, and not the whole machine."""
_MORE = 0.15
"""How much larger the share that it lacks must be than theirs. On a machine with ten times as much
to do as it can, all lack nearly everything."""
_MOSTLY = 0.8
"""Share of the time in which it gets so little, from which that counts even if it lacks hardly more
than its peers."""
_AROUND = 4
_WINDOW = 2 * _AROUND + 1
"""Steps before and after one whose median tells what is no chance in it."""
_LEAST_SECONDS = 8
"""Seconds of the loop that this takes to tell."""
_OVERLAP = 0.05
"""Share of their time for which workers may be at a place at once and still take turns."""
_ALWAYS = 0.9
"""Share of the steps from which a worker counts as always at work."""
_LEAST_RUNNING = 0.05
"""Share of the time that a peer must need a processor to be one."""
_MANY_PEERS = 5
"""Ranks for each slow one, from which it makes little difference whether a slow rank's work is
spread over them or just gets faster."""
_MANY_CALLED = 16
"""Processes from which a driver may take some percent of a step to call them all."""
_QUEUED = 0.2
"""Share of their time, waiting and served, that calls must wait for earlier ones to be a queue."""
_BUSY = 0.8
"""Share of the steps that a server must work to be one that bounds the run, without a queue."""
_FAR = 30 * 86_400
"""Seconds from which the time until a machine's memory is used up is not worth a word."""
_FAR_STEPS = 50
"""How many times the steps seen are too many to tell from them when memory is used up: what grew in
the first minute, as a cache, may not go on."""
SYNC_NAMES = re.compile(
    r"(?<!a)sync|weight|broadcast|all_?(reduce|gather|to_?all)|reduce_?scatter|barrier"
    r"|^ray\.serialize$"
)
"""Names of scopes that synchronise or hand over results. "async" does not count, as in
`asyncio.sleep`."""


class Record(Loop):
    """The loop of a run, with its stragglers and its unusually long steps."""

    @functools.cached_property
    def stragglers(self) -> list[Straggler]:
        """Ranks and nodes that are slower than the others, and do not wait for their devices.

        Those queue their device's work ahead of it: if they were faster, they would wait longer.
        """
        return [
            straggler
            for straggler in stragglers.find(self.run)
            if not _wait_for_devices(self, straggler.processes)
            and not (self.is_blind and _may_not_matter(self, straggler))
            and not (self.is_blind and _needs_replay(self, straggler))
        ]

    @functools.cached_property
    def is_blind(self) -> bool:
        """Whether so much of the path is unexplained that it does not tell who waits for whom."""
        return sum(self.open_shares.values()) > 1 - EXPLAINED

    @functools.cached_property
    def usage(self) -> dict[int, Usage]:
        """What each process used, by its position in `Run.processes`, where that is known."""
        usages = {process.number: usage_of(self.run, process) for process in self.run.processes}
        return {number: usage for number, usage in usages.items() if usage is not None}

    @functools.cached_property
    def lack(self) -> float:
        """The median share of the processor time they need that processes do not get.

        0 if the machine is not busy.
        """
        usages = self.usage.values()
        return statistics.median(usage.lacks for usage in usages) if busy(usages) else 0.0

    @functools.cached_property
    def usage_by_step(self) -> dict[int, StepUsage]:
        """The same of each step."""
        usages = {process.number: by_step(self.run, process) for process in self.run.processes}
        return {number: usage for number, usage in usages.items() if usage is not None}

    @functools.cached_property
    def occasions(self) -> Occasions:
        """Steps that take longer."""
        return Occasions(self)

    @functools.cached_property
    def sizes(self) -> dict[tuple[str, int], float]:
        """The bytes that a worker handles in a step, by group and place."""
        return sizes(self.run)

    @functools.cached_property
    def stays(self) -> Stays:
        """How long samples are with which workers."""
        return Stays.of(self.run)


@attrs.frozen
class Facts:
    """What else is known about a cause, for the sentences about it.

    Args:
        processes: how many processes the cause is about.
        node: the node of all these processes, if the node itself may be slow; else empty.
        grew: seconds per step in the first and in the last quarter of the steps; if there
            are `parts`, outside and inside of them.
        parts: the numbers of the first and the last step of each part of the run in which it
            occurs, ``None`` where the run begins or ends; empty if that is all of it.
        first: the scope with which a rank that begins late begins its steps, if it marks them.
        turns: how many ranks were the slowest in at least one step.
        at: the numbers of the steps in which the cause occurs.
        every: its period in steps, if it recurs regularly.
        rare: whether its place occurs in these steps only.
        took: seconds that its step took, if it has only one.
        even: share of the run that would be saved if the group's ranks took equally long, where
            that may be the remedy.
        at_once: the same if they worked at the same time; 0 unless they take turns.
        queued: share of their time that calls wait in a queue, and seconds per call.
        busy: share of the steps in which a server works.
        event_loop: whether a server runs several calls in an event loop.
        limit: what calls wait for in there, if that limits how many are under way at once.
        called: whether somebody calls it in each step, such as a driver.
        doubt: why the finding is only a hint: ``profiled``: a worker that it is compared with had
            no profiler; ``node``: it is alone on its node; ``half``: as many ranks are not slow;
            ``starved``: it waited for a processor; ``outside``: it may wait where it is in no
            scope; ``busy``: the machine is; ``several``: so are the servers; ``part``: what counts
            as a step may be a part of one; ``tokens``: they hardly tell how long samples take;
            ``path``: nothing tells who waits for whom; ``small``: it saves less than 7 % of the
            run; ``uneven``: it saves hardly anything in one half of the run.
        inside: the scope in which most of the time between steps is spent.
        scopes: in how many scopes it is, of what several do.
        itself: whether the workers load their data themselves, with no other process.
        worked: share of the time that a child process works, by its stacks, and that the others do
            in the median; 0 if its scopes tell.
        parent: the process that it works for, if its stacks tell.
        sent: bytes that are handed over, and how many of them in a second; 0 if not recorded.
        starved: share of its time that the process, ready to run, waited for a processor, if that
            may be what it takes longer.
        peers: the same of the others on its node, in the median; ``None`` without others.
        calls: a scope that it enters more often in a step than its peers, and how often each does;
            empty without one.
        faults: how many page faults more than usual, or than its peers, read a disk in a step, if
            that may be what it takes longer.
        usage: what the process used; ``None`` for causes that are no matter of that.
        left: the seconds and steps after which the memory that its machine has left is used up;
            ``None`` if that is not known, or more than a month away.
        ranks: which ranks to capture to see the cause, with another one to compare them with.
        steps: which steps to capture.
    """

    processes: int = 1
    node: str = ""
    grew: tuple[float, float] = (0.0, 0.0)
    parts: Sequence[tuple[int | None, int | None]] = ()
    first: str = ""
    turns: int = 0
    at: Sequence[int] = ()
    every: int | None = None
    rare: bool = False
    took: float = 0.0
    even: float = 0.0
    at_once: float = 0.0
    queued: tuple[float, float] = (0.0, 0.0)
    busy: float = 0.0
    event_loop: bool = False
    limit: str = ""
    called: bool = False
    doubt: Doubt = ""
    inside: str = ""
    scopes: int = 1
    itself: bool = False
    worked: tuple[float, float] = (0.0, 0.0)
    parent: str = ""
    sent: tuple[float, float] = (0.0, 0.0)
    starved: float = 0.0
    peers: float | None = None
    calls: tuple[str, int, int] = ("", 0, 0)
    faults: float = 0.0
    usage: Usage | None = None
    left: tuple[float, int] | None = None
    ranks: Sequence[int] = ()
    steps: Sequence[int] = ()


@attrs.frozen(kw_only=True)
class Finding:
    """A cause.

    Args:
        cause: the name of the cause.
        worker: its worker or node; if there are several, the slowest.
        workers: all its workers, the slowest first. `saves` is for all of them together.
        group: its group.
        scope: where the time goes.
        share: share of the run that it costs, by the excess over the others' median or by its
            share of the path.
        seconds: the same cost in seconds per step; in its step, if it has only one.
        steps: in how many steps it was the slowest, or occurred.
        of: how many steps were examined.
        probability: the probability of this by chance; ``None`` where chance plays no part.
        ratio: its time divided by the median of the others; ``None`` without others.
        saves: share of the run that would be saved if it were as fast as the others' median, or
            took no time; ``None`` if the path does not tell.
        others_waited: seconds per step that the other workers of its group waited meanwhile, on
            average.
        grade: ``named``, or ``hint`` if the record leaves room for another cause, or the finding
            is worth less than 7 % of the run.
        samples: what samples tell about it; ``None`` for a cause that is not found from them.
        facts: what else the sentences about it need.
    """

    cause: Name
    worker: str
    workers: Sequence[str]
    group: str
    scope: str
    share: float
    seconds: float
    steps: int
    of: int
    probability: float | None = None
    ratio: float | None = None
    saves: float | None = None
    others_waited: float = 0.0
    grade: Grade = "hint"
    samples: OfSamples | None = None
    facts: Facts = attrs.field(factory=Facts, repr=False)


@attrs.frozen(kw_only=True, eq=False)
class Suspect:
    """Activities that may be a cause.

    Args:
        finding: what to report if these activities are the cause.
        activities: what would take less time without the cause.
        excess: nanoseconds by which each activity takes longer, by step, where that is known.
        within: the positions of the only steps in which the activities occur; ``None`` means all
            steps.
        parts: conditions that each select some of the activities, to replace all of them if these
            save nearly as much. They are tried in turn.
        doubt: which room the record leaves for another cause.
        clocks: how the time of whole processes would pass without the cause.
        saves: the share of the run that it costs, if something tells that better than the path.
        known: whether the activities are work, also where the path cannot tell.
        said: the share of the run that findings about some of these activities save already.
        least: share of the run that it must save, if that is more than for others of its cause.
    """

    finding: Finding
    activities: Sequence[Activity] = ()
    excess: Mapping[Activity, Floats] = attrs.field(factory=dict)
    within: Sequence[int] | None = None
    parts: Sequence[Callable[[Activity], bool]] = ()
    doubt: Doubt = ""
    clocks: Clocks = attrs.field(factory=dict)
    saves: float | None = None
    known: bool = False
    said: float = 0.0
    least: float = 0.0


@attrs.frozen
class Cause:
    """A row of the table.

    Args:
        select: returns the suspects of a record, given the earlier findings.
        instead: returns the multipliers that take the cause out of the times of a suspect's
            activities; ``None`` if the path cannot tell what that saves.
        least: share of the run that a suspect must save, or must cost if the path does not tell.
        grade: ``large``: named if it saves 7 % of the run; ``lasting``: named if it also saves
            something in each half of the run, or is known to be in a part of it; ``named``: always
            named; ``hint``: always a hint.
        blind: whether to look for it even if the path does not tell what bounds a step.
        together: whether to try the suspects of a group together if each saves too little alone.
    """

    select: Callable[[Record, Sequence[Finding]], Iterable[Suspect]]
    instead: Callable[[Record, Suspect], Factors] | None
    least: float
    grade: Literal["large", "lasting", "named", "hint"]
    blind: bool = False
    together: bool = False


def find(record: Record, unknown: Unknown, table: Sequence[Cause]) -> list[Finding]:
    """Find the causes, the most expensive first.

    Args:
        unknown: why the path does not tell what bounds a step.
        table: the causes to look for, in this order.
    """
    findings: list[Finding] = []
    for cause in table:
        if not unknown or cause.blind:
            suspects = list(cause.select(record, findings))
            findings += _worth_it(record, cause, suspects, unknown)
    return sorted(findings, key=lambda finding: -_weight(finding))


def bottleneck(record: Record, unknown: Unknown, findings: Sequence[Finding]) -> Finding | None:
    """The place in which a group works for most of the run; ``None`` if there is another cause.

    It accuses nobody: the ranks of the group are alike, or there is only one.
    """
    if unknown or any(map(_matters, findings)):
        return None
    suspects = list(_bottlenecks(record, findings))
    found = next(_worth_it(record, _LAST, suspects, unknown), None)
    if found is None or found.facts.processes < 2:
        return found
    processes = [record.run.processes[number] for number, _ in suspects[0].activities]
    place = suspects[0].activities[0][1]
    times = _times_and_mean(record, place, processes)[0][record.usual]
    if place != OUTSIDE and _take_turns(record.run, place, processes):
        at_once = float((times.sum(axis=1) - times.max(axis=1)).sum()) / record.loop
        return attrs.evolve(found, facts=attrs.evolve(found.facts, at_once=at_once))
    ranks = list(comparable.members(record.run, found.group).values())
    if record.lack or not comparable.is_steady(record.run, place, ranks):
        return found
    last = np.bincount(times.argmax(axis=1))
    # one of them may well be slow; of a group whose ranks stay away, nobody knows the mean
    if 2 * last.max() > len(times) or not times.all():
        return found
    even = record.saves(groups_mean(record, suspects[0]))
    return attrs.evolve(found, facts=attrs.evolve(found.facts, even=even))


def _matters(finding: Finding) -> bool:
    """Whether a finding is worth more than a word beside what takes most of the run."""
    is_weak = finding.grade == "hint" and _worth(finding) < _WEAK
    return finding.cause not in ("once", "leak") and not is_weak


def overlapped(record: Record, unknown: Unknown) -> Finding | None:
    """The place with most of the path, if the run would take nearly as long without it.

    Others take about as long meanwhile, such as producers that fill a queue.
    """
    for suspect in _bottlenecks(record, ()) if not unknown else ():
        finding = _judged(record, _LAST, suspect, unknown)
        if finding.share >= _BOTTLENECK and (finding.saves or 0.0) < _OVERLAPPED * finding.share:
            return finding
    return None


def _take_turns(run: Run, place: int, processes: Sequence[Process]) -> bool:
    """Whether hardly ever two of some processes are at a place at once."""
    first, last = run.steps[run.usual[0]].start, run.steps[run.usual[-1]].end
    parts = [np.zeros((0, 2))]
    for process in processes:
        spans, offset = process.ledger.spans, process.ledger.offset
        mine = spans[(process.places == place)[spans["place"]]]
        edges = np.stack([mine["start"], mine["end"]], axis=1) + offset
        parts.append(edges[(edges[:, 1] > first) & (edges[:, 0] < last)])
    edges = np.concatenate(parts)
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    in_all = float((edges[:, 1] - edges[:, 0]).sum())
    until = np.maximum.accumulate(edges[:, 1])
    overlaps = (np.minimum(until[:-1], edges[1:, 1]) - edges[1:, 0]).clip(0)
    return bool(in_all) and float(overlaps.sum()) <= _OVERLAP * in_all


def _weight(finding: Finding) -> float:
    """How much a finding counts in the order: half without a replay, less for a one-time pause."""
    if finding.saves is None:
        return finding.share / 2
    is_single = finding.cause == "pauses" and finding.steps == 1
    return finding.saves * (_SINGLE if is_single else 1)


def _worth(finding: Finding) -> float:
    return finding.share if finding.saves is None else finding.saves


def _worth_it(
    record: Record, cause: Cause, suspects: Sequence[Suspect], unknown: Unknown
) -> Iterator[Finding]:
    worthless: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        finding = _judged(record, cause, suspect, unknown)
        if _worth(finding) >= max(cause.least, suspect.least):
            yield finding
        elif cause.together:
            worthless.setdefault(finding.group, []).append(suspect)
    for group, several in worthless.items():
        suspect = _joined(several)
        slower_than_whom = len(suspect.finding.workers) < len(record.run.groups[group])
        finding = _judged(record, cause, suspect, unknown)
        if slower_than_whom and _worth(finding) >= max(cause.least, suspect.least):
            yield finding


def _judged(record: Record, cause: Cause, suspect: Suspect, unknown: Unknown) -> Finding:
    """What a suspect is worth, and how sure that is."""
    known = unknown == "unexplained" and suspect.known
    tells = not unknown or known
    tells |= unknown == "unexplained" and _is_the_unexplained(record, suspect)
    is_blind = unknown and cause.grade != "named" and not known
    doubt: Doubt = suspect.doubt or ("path" if is_blind else "")
    has_a_replay = suspect.activities or suspect.clocks or suspect.saves is not None
    if cause.instead is None or not tells or not has_a_replay:
        return _graded(suspect.finding, cause, doubt)
    factors = cause.instead(record, suspect)
    saves = suspect.saves
    if saves is None:
        saves = record.saves(factors, suspect.within, suspect.clocks)
    if suspect.finding.cause in _OF_NO_SCOPE:  # other time in no scope is not that
        saves = min(saves, suspect.finding.share)
    for part in suspect.parts:
        activities = [activity for activity in suspect.activities if part(activity)]
        if 0 < len(activities) < len(suspect.activities):
            smaller = _only_part(record, suspect, activities)
            less = cause.instead(record, smaller)
            saving = record.saves(less, suspect.within)
            if suspect.finding.cause in _OF_NO_SCOPE:
                saving = min(saving, suspect.finding.share)
            if saving >= _NEARLY_ALL * saves:
                suspect, factors, saves = smaller, less, saving
            elif suspect.finding.cause in _SLOW:  # one scope is not what it is about
                several = attrs.evolve(suspect.finding, scope=NAMES[ALL])
                suspect = attrs.evolve(suspect, finding=several)
    in_all, saves = saves, max(0.0, saves - suspect.said)
    if unknown and cause.least <= saves < _CONTRADICTED * suspect.finding.share:
        # what seems to take as long beside it may wait for it, unseen
        return _graded(suspect.finding, cause, doubt)
    if not doubt and cause.grade in ("large", "lasting"):
        if saves < _NAMED:
            doubt = "small"
        elif (
            cause.grade == "lasting"
            and not suspect.finding.facts.parts
            and min(record.in_halves(in_all, factors)) < _IN_A_HALF
        ):
            doubt = "uneven"
    facts = attrs.evolve(suspect.finding.facts, even=_if_spread(record, suspect))
    return _graded(attrs.evolve(suspect.finding, saves=saves, facts=facts), cause, doubt)


def _if_spread(record: Record, suspect: Suspect) -> float:
    """The share of the run that is saved if a slow rank's work is spread over its group.

    0 if the suspect is no slow rank, or has so many peers that this is hardly less than what is
    saved if it becomes as fast as they are.
    """
    finding = suspect.finding
    if finding.cause != "rank":
        return 0.0
    if _MANY_PEERS * len(finding.workers) <= len(comparable.members(record.run, finding.group)):
        return 0.0
    places = dict.fromkeys(place for _, place in suspect.activities)
    of_group = [at for place in places for at in _of_group(record, finding.group, [place])]
    return record.saves(groups_mean(record, attrs.evolve(suspect, activities=of_group)))


def _graded(finding: Finding, cause: Cause, doubt: Doubt) -> Finding:
    sure = cause.grade == "named" or (cause.grade != "hint" and finding.saves is not None)
    facts = attrs.evolve(finding.facts, doubt=doubt)
    return attrs.evolve(finding, grade="named" if sure and not doubt else "hint", facts=facts)


def _is_the_unexplained(record: Record, suspect: Suspect) -> bool:
    """Whether the path is explained but for what the suspect does.

    A replay without that is then as good as of a path that is explained.
    """
    own = {*suspect.activities, *suspect.excess}
    rest = sum(share for (*at, _), share in record.open_shares.items() if tuple(at) not in own)
    return rest <= 1 - EXPLAINED


def _only_part(record: Record, suspect: Suspect, activities: Sequence[Activity]) -> Suspect:
    """The suspect with only these activities, and a finding with only their workers and scopes."""
    finding = suspect.finding
    scopes = {record.name(place, number) for number, place in activities}
    (scope,) = scopes if len(scopes) == 1 else (finding.scope,)
    numbers = {number for number, place in activities if record.name(place, number) == scope}
    names = {record.run.processes[number].name for number in numbers}
    smaller = attrs.evolve(
        finding,
        scope=scope,
        workers=[name for name in finding.workers if name in names] or finding.workers,
        facts=attrs.evolve(
            finding.facts,
            processes=len(numbers) or finding.facts.processes,
            scopes=len(scopes),
        ),
    )
    return attrs.evolve(suspect, finding=smaller, activities=activities)


def _joined(suspects: Sequence[Suspect]) -> Suspect:
    """Join the suspects of a group, given with the slowest first, into one suspect."""
    findings = [suspect.finding for suspect in suspects]
    scopes = dict.fromkeys(finding.scope for finding in findings)
    workers = chain.from_iterable(finding.workers for finding in findings)
    return attrs.evolve(
        suspects[0],
        finding=attrs.evolve(
            findings[0],
            workers=list(dict.fromkeys(workers)),
            scope=findings[0].scope if len(scopes) == 1 else NAMES[ALL],
        ),
        activities=list(dict.fromkeys(chain.from_iterable(s.activities for s in suspects))),
        excess={at: longer for s in suspects for at, longer in s.excess.items()},
    )


# How long activities would take instead


def nothing(record: Record, suspect: Suspect) -> Factors:
    """No time."""
    factors = dict.fromkeys(suspect.activities, 0.0)
    return lambda _: factors


def but_for_a_processor(record: Record, suspect: Suspect) -> Factors:
    """No time, except the share that a busy machine had no processor for.

    Processes that are not recorded are taken to lack the same share of the processor time that they
    need as the recorded ones. Where the samples of a loader tell what it does, it would need none
    without that.
    """
    run = record.run
    helped = {name.rpartition("-")[0] for name in run.helpers}
    factors = {
        (number, place): 0.0 if run.processes[number].name in helped else record.lack
        for number, place in suspect.activities
    }
    return lambda _: factors


def half(record: Record, suspect: Suspect) -> Factors:
    """Half their time."""
    factors = dict.fromkeys(suspect.activities, 0.5)
    return lambda _: factors


def peers_median(record: Record, suspect: Suspect) -> Factors:
    """The median of the other ranks of their group that do the same.

    Of a node, processes that have no peers elsewhere would become faster as the others there do.
    Where whichever rank is free gets the next call, fewer calls are left for the others: all ranks
    get done sooner as long as somebody takes what they make, and all at once where somebody waits
    for the last one. Whichever of the two saves more.
    """
    run = record.run
    suspects = {number for number, _ in suspect.activities}
    factors: dict[Activity, Floats] = {}
    at_once: dict[Activity, Floats] = {}
    alone: list[Activity] = []
    own_sum, median_sum = np.zeros(len(run.steps)), np.zeros(len(run.steps))
    groups = {(run.processes[number].group, place) for number, place in suspect.activities}
    for group, place in sorted(groups):
        ranks = list(comparable.members(run, group).values())
        mine = np.array([rank[0].number in suspects for rank in ranks])
        times = comparable.pace(run, place, ranks)
        if mine.all():
            alone += [(rank[0].number, place) for rank in ranks if times.any()]
            continue
        peers = ~mine & (times[run.usual] > 0).any(axis=0)
        if not peers.any():
            continue
        shorter = times.copy()
        median = np.median(times[:, peers], axis=1, keepdims=True)
        if suspect.finding.cause == "drift":
            shorter[:, mine] = np.minimum(times[:, mine], median)
        else:
            shorter[:, mine] *= 1 - _slowness(times[:, mine], median, run.usual)
        own_sum += times[:, mine].sum(axis=1)
        median_sum += shorter[:, mine].sum(axis=1)
        calls = comparable.shared_calls(run, place, ranks, mine)
        if calls is None:
            ratios = _ratios(shorter, times)
        else:
            rates, faster = (
                np.divide(1, time, out=np.zeros_like(time), where=time > 0).sum(axis=1)
                for time in (times, shorter)
            )
            ratios = np.tile(_ratios(rates, faster)[:, None], len(ranks))
        for column in np.flatnonzero(mine if calls is None else times.any(axis=0)).tolist():
            for process in ranks[column]:
                factors[process.number, place] = ratios[:, column]
                if calls is not None:
                    together = calls.sum() / faster.clip(1e-12)
                    own = calls[column] * times[:, column]
                    at_once[process.number, place] = _ratios(together, own)
    typical = np.divide(median_sum, own_sum, out=np.ones(len(own_sum)), where=own_sum > 0)
    factors |= dict.fromkeys(alone, typical)
    both = [_by_step(_within_steps(record, those)) for those in (factors, factors | at_once)]
    return max(both, key=record.saves) if at_once else both[0]


def _slowness(times: Floats, others: Floats, usual: Sequence[int]) -> Floats:
    """The share of each time that slowness takes, by step and rank.

    Ranks vary by chance as well, and would still do so. How far the share lies below its median
    tells by how much; only a larger spread than that is slowness that comes and goes.

    Args:
        times: of the slow ranks.
        others: of the others, by step.
        usual: the positions of the steps that count.
    """
    shares = np.divide(times - others, times, out=np.zeros_like(times), where=times > 0)
    mean = (times - others)[usual].sum(axis=0) / times[usual].sum(axis=0).clip(1)
    below = (np.median(shares[usual], axis=0) - shares[usual]).clip(0)
    by_chance = 2 * (below**2).mean(axis=0)
    variance = shares[usual].var(axis=0)
    certain = 1 - np.divide(by_chance, variance, out=np.ones_like(mean), where=variance > 0)
    slowness: Floats = (mean + certain.clip(0) * (shares - mean)).clip(0, 1)
    return slowness


def _ratios(times: Floats, to: Floats) -> Floats:
    """Times relative to others; 1 where one of them is 0."""
    return np.divide(times, to, out=np.ones_like(to), where=(times > 0) & (to > 0))


def groups_mean(record: Record, suspect: Suspect) -> Factors:
    """The mean of the suspect's ranks, over those that spend any time at the place in the step."""
    factors: dict[Activity, Floats] = {}
    for place in dict.fromkeys(place for _, place in suspect.activities):
        numbers = [number for number, other in suspect.activities if other == place]
        times, mean = _times_and_mean(record, place, [record.run.processes[n] for n in numbers])
        for column, number in enumerate(numbers):
            factors[number, place] = mean / times[:, column].clip(1)
    return _by_step(factors)


def usual(record: Record, suspect: Suspect) -> Factors:
    """Their own time without the excess; no time for activities that occur in some steps only."""
    if not suspect.excess:
        return nothing(record, suspect)
    factors: dict[Activity, Floats] = {}
    for number, place in suspect.activities:
        own = record.run.matrix("own", place, [record.run.processes[number]])[:, 0]
        factors[number, place] = (1 - suspect.excess[number, place] / own.clip(1)).clip(0)
    return _by_step(_within_steps(record, factors))


def in_steps(record: Record, suspect: Suspect) -> Factors:
    """The time that they take within steps."""
    shares = {activity: record.before_steps(*activity) for activity in suspect.activities}
    return _by_step({activity: 1 - share for activity, share in shares.items()})


def between_steps_only(record: Record, suspect: Suspect) -> Factors:
    """No time in steps; what they take between steps is a cause of its own."""
    return _by_step({activity: record.before_steps(*activity) for activity in suspect.activities})


def sooner(record: Record, suspect: Suspect) -> Factors:
    """The time outside of all scopes without the excess, as far as it is on the path."""

    def factor(step: int, activity: Activity) -> float:
        outside = max(1, _outside(record, activity[0], step))
        return max(0.0, 1 - float(suspect.excess[activity][step]) / outside)

    return lambda step: {activity: factor(step, activity) for activity in suspect.excess}


def _outside(record: Record, process: int, step: int) -> int:
    """Nanoseconds that the path of a step spends in a process outside of all its scopes."""
    path = record.stretches(step)
    return sum(p.duration for p in path if p.process == process and p.place == OUTSIDE)


def _within_steps(record: Record, factors: Mapping[Activity, Floats]) -> dict[Activity, Floats]:
    """The factors for the time in each step, changed to apply to the time since the last step, too.

    Outside of all scopes, a stretch of the path may begin before its step, where nothing is saved.
    """
    return {
        activity: 1 - (1 - values) * (1 - record.before_steps(*activity).clip(0, 1))
        if activity[1] == OUTSIDE
        else values
        for activity, values in factors.items()
    }


def _by_step(factors: Mapping[Activity, Floats]) -> Factors:
    return lambda step: {activity: float(values[step]) for activity, values in factors.items()}


def _times_and_mean(
    record: Record, place: int, processes: Sequence[Process]
) -> tuple[Floats, Floats]:
    """Nanoseconds in a place by step and process, and by step the mean of the nonzero ones."""
    times = comparable.own_time(record.run, place, [[process] for process in processes])
    return times, times.sum(axis=1) / (times > 0).sum(axis=1).clip(1)


# Which activities: ranks and nodes that are slower than the others


def _wait_for_devices(record: Record, numbers: Sequence[int]) -> bool:
    """Whether each of some processes waits for its device in most steps."""
    run, processes = record.run, [record.run.processes[number] for number in numbers]
    waits = np.zeros((len(record.usual), len(processes)))
    for place in np.flatnonzero(run.may_wait[: len(run.places)]).tolist():
        if READS_DEVICE.search(run.places[place].name.lower()):
            waits += run.matrix("own", place, processes)[record.usual]
    return bool((np.median(waits, axis=0) >= _LEAST_SHARE * record.mean).all())


def _may_not_matter(record: Record, straggler: Straggler) -> bool:
    """Whether a straggler may only wait, or may hold up nobody. For runs without a known path.

    A rank that takes longer at one place and as much less elsewhere may wait there for the others,
    unless they wait for it. A rank that is idle for longer than it is slow holds up nobody, if
    another worker always works.
    """
    run = record.run
    work = run.work(run.processes)[record.usual]
    peers = np.array([process.number for process in run.groups[straggler.group]])
    is_slow = np.isin(peers, straggler.processes)
    mine, others = peers[is_slow], peers[~is_slow]
    is_scope = straggler.place >= 0 and run.places[straggler.place].waits_for is None
    if is_scope and len(others):
        durations = np.array([run.steps[position].duration for position in record.usual])
        usual_work = np.median(work[:, others], axis=1)
        longer = float(np.median(work[:, mine].mean(axis=1) - usual_work))
        idle = float(np.median(durations - usual_work))
        if max(longer, idle) < _MOST_OF_IT * straggler.excess:
            return True
    busy = work.mean(axis=0) / record.mean
    elsewhere = np.setdiff1d(np.arange(len(busy)), peers)
    idles = 1 - busy[mine].max() >= straggler.excess / record.mean
    return bool(idles and (busy[elsewhere] >= _ALWAYS).any())


def _needs_replay(record: Record, straggler: Straggler) -> bool:
    """Whether a straggler counts only if a replay saves much: others take about as long."""
    return straggler.kind == "rank" and straggler.gain < _LEAST_SHARE * record.mean


def slow(kind: stragglers.Kind) -> Callable[[Record, Sequence[Finding]], Iterator[Suspect]]:
    """Select the stragglers of a kind that neither the garbage collector nor pauses explain."""

    def select(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
        for straggler in record.stragglers:
            if straggler.kind == kind and not _is_explained(record, straggler, findings):
                yield _slow(record, straggler, kind)

    return select


def _smooth(times: Floats, mean: float) -> Floats:
    """The median of the times around each, scaled to a mean: chance goes, growth stays."""
    around = np.lib.stride_tricks.sliding_window_view(np.pad(times, _AROUND, "edge"), _WINDOW)
    smooth: Floats = np.median(around, axis=1)
    return smooth * (mean / smooth.mean()) if smooth.any() else np.full(len(times), mean)


def _slow(record: Record, straggler: Straggler, cause: Name) -> Suspect:
    run, numbers = record.run, straggler.processes
    steps = [run.steps[position].number for position in straggler.to_capture(record.usual)]
    ranks = {run.processes[number].rank for number in numbers}
    loop = run.steps[record.usual[0]].start, run.steps[record.usual[-1]].end
    starvation = max(waited(run.processes[number], *loop) or 0.0 for number in numbers)
    difference = starvation - _waits_usually(record, straggler.group, numbers, loop)
    may_explain = (
        difference >= STARVED and difference * record.mean >= _MOST_OF_IT * straggler.excess
    )
    faults = max(_more_faults(record, number) for number in numbers)
    activities = [
        (number, place)
        for number in numbers
        for place in (
            *dict.fromkeys(run.processes[number].places[1:].tolist()),
            *comparable.outside(run, run.processes[number].group),
        )
    ]
    excess: dict[Activity, Floats] = {}
    if straggler.place == BEFORE:
        in_step = np.zeros(len(run.steps))
        longer = (straggler.own - straggler.others).clip(0)
        in_step[record.usual] = longer if straggler.parts else _smooth(longer, straggler.excess)
        excess = {(number, OUTSIDE): in_step for number in numbers}
    # of ranks that share calls, the excess is what they would take for as many as the others
    cost = min(straggler.excess, record.mean * (1 - 1 / max(1.0, straggler.ratio)))
    if straggler.place == BEFORE:
        cost = straggler.excess
    ranks_in_all = len({process.rank for process in run.groups[straggler.group]})
    is_half = cause in _SLOW and 2 * len(ranks) >= ranks_in_all
    if ranks_in_all == 2:
        is_half &= straggler.ratio < _OF_TWO
    doubts: Mapping[Doubt, bool] = {
        "profiled": _is_alone_profiled(record, straggler),
        "node": straggler.alone,
        "half": is_half,
        "starved": difference >= STARVED
        and difference * record.mean >= _PART_OF_IT * straggler.excess,
        "busy": cause in _SLOW and bool(record.lack) and straggler.ratio < _OF_A_BUSY_MACHINE,
        "outside": straggler.place == OUTSIDE
        and not (straggler.awaited or comparable.works_outside(run, numbers)),
    }
    doubt: Doubt = next((why for why, applies in doubts.items() if applies), "")
    return Suspect(
        finding=_finding(
            record,
            cost * len(record.usual),
            cause=cause,
            worker=straggler.names[0],
            workers=list(straggler.names),
            group=straggler.group,
            scope=record.name(straggler.place)
            if straggler.late_for < 0
            else f"(before {record.name(straggler.late_for)})",
            steps=straggler.slowest,
            of=straggler.steps,
            probability=straggler.probability,
            ratio=straggler.ratio,
            others_waited=_others_waited(record, straggler) / 1e9,
            facts=Facts(
                processes=len(numbers),
                node=run.processes[numbers[0]].node if straggler.alone else "",
                grew=(straggler.grew[0] / 1e9, straggler.grew[1] / 1e9),
                parts=_parts(record, straggler),
                first=_first(record, straggler),
                starved=starvation if may_explain else 0.0,
                calls=_more_calls(record, straggler),
                faults=faults if faults * FAULT >= _MOST_OF_IT * straggler.excess else 0.0,
                called=run.driver is not None,
                ranks=_to_capture(record, straggler.group, ranks),
                steps=steps,
            ),
        ),
        activities=activities,
        excess=excess,
        known=straggler.awaited,
        least=_NAMED if _needs_replay(record, straggler) else 0.0,
        parts=[functools.partial(_is_at, straggler.place)]
        if cause in _SLOW and straggler.place >= OUTSIDE
        else (),
        doubt=doubt,
    )


def _first(record: Record, straggler: Straggler) -> str:
    """The scope that a late rank begins its steps with; empty if others call it."""
    process = record.run.processes[straggler.processes[0]]
    if straggler.place != BEFORE or not comparable.outside(record.run, process.group):
        return ""
    place = arrivals.first_place(record.run, process)
    return "" if place is None else record.name(place)


def _parts(record: Record, straggler: Straggler) -> list[tuple[int | None, int | None]]:
    """The numbers of the steps from which and until which a straggler is slow."""
    steps = [record.run.steps[position].number for position in record.usual]
    return [
        (steps[first] if first else None, steps[last] if last < len(steps) - 1 else None)
        for first, last in straggler.parts
    ]


def _waits_usually(record: Record, group: str, slow: Sequence[int], loop: tuple[int, int]) -> float:
    """The share of its time that one of the others in a group waits for a processor."""
    others = [process for process in record.run.groups[group] if process.number not in slow]
    waits = [share for process in others if (share := waited(process, *loop)) is not None]
    return float(np.median(waits)) if waits else 0.0


def _more_faults(record: Record, number: int) -> float:
    """How many more page faults a step read a disk than in the others of its group."""
    group = record.run.processes[number].group
    others = [
        usage.faults
        for position, usage in record.usage.items()
        if position != number and record.run.processes[position].group == group
    ]
    if number not in record.usage or not others:
        return 0.0
    return record.usage[number].faults - float(np.median(others))


def _more_calls(record: Record, straggler: Straggler) -> tuple[str, int, int]:
    """The outermost scope that the slow ranks enter more often than the others; see `Facts.calls`.

    Then they may have more to do, such as more micro-batches.
    """
    run = record.run
    ranks = list(comparable.members(run, straggler.group).values())
    processes = list(chain.from_iterable(ranks))
    mine = np.array([any(p.number in straggler.processes for p in rank) for rank in ranks], bool)
    if straggler.kind == "node" or not mine.any() or mine.all():
        return "", 0, 0
    places = comparable.common_places(run, straggler.group)
    for place in sorted((p for p in places if p >= 0), key=lambda p: run.places[p].depth):
        calls = of_ranks(run.matrix("calls", place, processes), ranks)[record.usual]
        own, others = (round(float(np.median(calls[:, who]))) for who in (mine, ~mine))
        if others >= 1 and own >= _MORE_CALLS * others and run.places[place].waits_for is None:
            return record.name(place), own, others
    return "", 0, 0


def another_part(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """Ranks that are slow or have another part in the job, which may be spread evenly."""
    for straggler, suspect in _of_another_part(record):
        group, place = straggler.group, straggler.place
        places = comparable.common_places(record.run, group) if place == ALL else [place]
        yield attrs.evolve(suspect, activities=_of_group(record, group, places))


def another_part_or_slow(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """The same ranks, where an even share saves too little, as ranks that are slow."""
    known = {tuple(finding.workers) for finding in findings}
    for _, suspect in _of_another_part(record):
        if tuple(suspect.finding.workers) not in known:
            yield suspect


def _of_another_part(record: Record) -> Iterator[tuple[Straggler, Suspect]]:
    """Ranks that are slow or have another part in the job: the record does not tell which."""
    run = record.run
    for straggler in record.stragglers:
        if straggler.kind == "imbalance":
            suspect = _slow(record, straggler, "imbalance")
            nodes = {run.processes[number].node for number in straggler.processes}
            other_nodes = {process.node for process in run.groups[straggler.group]} - nodes
            node = nodes.pop() if len(nodes) == 1 and other_nodes else ""
            rank = run.processes[straggler.processes[0]].rank
            ranks = _to_capture(record, straggler.group, {rank})
            finding = attrs.evolve(
                suspect.finding,
                worker="",
                workers=sorted(straggler.names, key=lambda name: (len(name), name)),
                others_waited=0.0,
                facts=Facts(node=node, ranks=ranks, steps=suspect.finding.facts.steps),
            )
            yield straggler, attrs.evolve(suspect, finding=finding)


def by_turns(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Places in which a different rank is slow in each step, if nobody is slow there."""
    run = record.run
    known = {(finding.group, finding.scope) for finding in findings}
    for group in run.groups:
        for place in comparable.common_places(run, group):
            is_new = known.isdisjoint({(group, record.name(place)), (group, NAMES[ALL])})
            if is_new and stragglers.imbalanced(run, group, place):
                activities = _of_group(record, group, [place])
                processes = [run.processes[number] for number, _ in activities]
                times, mean = _times_and_mean(record, place, processes)
                times, mean = times[record.usual], mean[record.usual]
                turns = len(set(times.argmax(axis=1).tolist()))
                finding = _finding(
                    record,
                    float((times.max(axis=1) - mean).sum()),
                    cause="imbalance",
                    worker="",
                    workers=[],
                    group=group,
                    scope=record.name(place),
                    facts=Facts(processes=times.shape[1], turns=turns),
                )
                saves = _longest_first(record, group, place)
                yield Suspect(finding=finding, activities=activities, saves=saves)


def _longest_first(record: Record, group: str, place: int) -> float | None:
    """The share of the run that is saved if ranks that get several calls share them by length.

    Whoever is free takes the next call, so with other times each rank would get others than in a
    replay. Dealt out with the longest first, the calls of a step take at most a third longer than
    they must (Graham, 1969: bounds on multiprocessing timing anomalies).

    Returns:
        ``None`` if the ranks get about one call each, do something else between them, mostly wait
        in them, or others go on with each result at once.
    """
    run = record.run
    ranks = list(comparable.members(run, group).values())
    if run.edges.keys() & {process.number for rank in ranks for process in rank}:
        return None  # each makes the calls of its program
    begins = np.array([run.steps[position].start for position in record.usual])
    lengths: dict[int, list[int]] = {}
    first, last = np.full(len(begins), np.inf), np.zeros(len(begins))
    idle = 0
    for rank in ranks:
        for process in rank:
            places, starts, ends, _, counts = rows_of(process)
            at_place = places == place
            if (
                at_place.any() and counts[at_place].max() > 1
            ):  # folded: nothing tells how long each took
                return None
            starts, ends = np.sort(starts[at_place]), np.sort(ends[at_place])
            steps = np.searchsorted(begins, starts, "right") - 1
            in_a_row = np.diff(steps) == 0
            idle += int((starts[1:] - ends[:-1])[in_a_row].clip(0).sum())
            for step, start, end in zip(
                steps.tolist(), starts.tolist(), ends.tolist(), strict=True
            ):
                if step >= 0:
                    lengths.setdefault(step, []).append(end - start)
                    first[step], last[step] = min(first[step], start), max(last[step], end)
    calls = sum(map(len, lengths.values()))
    if calls < 2 * len(ranks) * len(begins) or idle > _BETWEEN * sum(map(sum, lengths.values())):
        return None
    on_path = sum(
        float(share.mean()) * record.mean
        for (_, other, _), share in record.shares.items()
        if other == place
    )
    if on_path < float((last - first).clip(0).mean()) / 2:
        return None
    saved = 0.0
    for step, of_step in lengths.items():
        totals = [0] * len(ranks)
        for length in sorted(of_step, reverse=True):
            heapq.heapreplace(totals, totals[0] + length)
        saved += max(0.0, float(last[step] - first[step]) - max(totals))
    return saved / record.loop


def _of_group(record: Record, group: str, places: Sequence[int]) -> list[Activity]:
    ranks = comparable.members(record.run, group).values()
    return [(process.number, place) for place in places for process in chain.from_iterable(ranks)]


def _to_capture(record: Record, group: str, ranks: set[int]) -> list[int]:
    """The given ranks, and another one of the group to compare them with."""
    others = [process.rank for process in record.run.groups[group] if process.rank not in ranks]
    return sorted({*ranks, *others[:1]})


def _others_waited(record: Record, straggler: Straggler) -> float:
    """Nanoseconds per step by which a straggler works longer than the mean of the other ranks.

    As far as these do not work meanwhile, as ranks do that run freely. Of several stragglers, the
    one that works longest in the step. 0 for a node.
    """
    if straggler.kind == "node":
        return 0.0
    run = record.run
    members = chain.from_iterable(comparable.members(run, straggler.group).values())
    peers = [process for process in members if process.number not in straggler.processes]
    if not peers:
        return 0.0
    own = run.work([run.processes[number] for number in straggler.processes])[record.usual]
    others = run.work(peers)[record.usual].mean(axis=1)
    difference = np.minimum(own.max(axis=1), record.durations) - others
    return float(difference.clip(0).mean())


def _is_alone_profiled(record: Record, straggler: Straggler) -> bool:
    """Whether a straggler had a profiler while a worker that it is compared with had none."""
    run = record.run
    groups = {run.processes[number].group for number in straggler.processes}
    peers = {process.number for group in groups for process in run.groups[group]} - set(
        straggler.processes
    )
    return run.profiled.issuperset(straggler.processes) and not run.profiled.issuperset(peers)


def _is_explained(record: Record, straggler: Straggler, findings: Sequence[Finding]) -> bool:
    """Whether what stops processes, or pauses, cause most of a straggler's excess."""
    stop_costs = (
        1e9 * finding.seconds * len(record.usual)
        for finding in findings
        if finding.cause in _STOPS and set(straggler.names) <= set(finding.workers)
    )
    pause_costs = (
        occasion.cost
        for occasion in record.occasions.pauses
        if straggler.kind == "rank" and set(straggler.processes) == set(occasion.processes)
    )
    most = _MOST_OF_IT * straggler.excess * len(record.usual)
    return any(cost >= most for cost in chain(stop_costs, pause_costs))


# Which activities: on the path, whoever does them


def collections(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """The garbage collector's pauses in all processes. They are recorded, not guessed."""
    run = record.run
    rows = run.sums[(run.sums["collecting"] > 0) & ~run.waiting_places[run.sums["place"]]]
    places = [*np.unique(rows["place"]).tolist()]
    by_place = {place: run.matrix("collecting", place, run.processes) for place in places}
    outside = np.zeros((len(run.steps), len(run.processes)))
    for group, members in run.groups.items():
        if comparable.outside(run, group):  # else it may wait there for the next call
            numbers = [process.number for process in members]
            outside[:, numbers] = run.matrix("collecting", OUTSIDE, members)
    by_place[OUTSIDE] = outside
    usual_times = {place: times[record.usual] for place, times in by_place.items()}
    pause_times = sum(times.sum(axis=0) for times in usual_times.values())
    worst = int(np.argmax(pause_times))
    if pause_times[worst] < _LEAST_SHARE * record.mean * len(record.usual):
        return
    activities = [
        (number, place)
        for place, times in usual_times.items()
        for number in np.flatnonzero(times.any(axis=0)).tolist()
    ]
    processes = sorted(
        {number for number, _ in activities}, key=lambda number: -pause_times[number]
    )
    most = max(usual_times, key=lambda place: float(usual_times[place][:, worst].sum()))
    in_steps = np.any([times.any(axis=1) for times in usual_times.values()], axis=0)
    yield Suspect(
        finding=_finding(
            record,
            float(pause_times[worst]),
            cause="garbage collection",
            worker=run.processes[worst].name,
            workers=[run.processes[number].name for number in processes],
            group=run.processes[worst].group,
            scope=record.name(most),
            steps=int(in_steps.sum()),
            facts=Facts(processes=len(processes)),
        ),
        activities=activities,
        excess={(number, place): by_place[place][:, number] for number, place in activities},
        parts=[functools.partial(_is_of, worst)],
    )


# Which activities: those of processes that lack something


def starved(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """Processes that get less of a processor than the others on their node.

    Where all wait as long, the machine is too busy, and nobody is the cause.
    """
    for number, usage in record.usage.items():
        others = {
            position: other
            for position, other in record.usage.items()
            if position != number and other.node == usage.node
        }
        peers = {
            position: other.lacks
            for position, other in others.items()
            if other.ran + other.waited >= _LEAST_RUNNING
        }
        expected = float(np.median([*peers.values()])) if peers else usage.share_lacking
        gets_less = 1 - usage.lacks <= _LESS * (1 - expected)
        peers_waited = float(np.median([other.waited for other in others.values()] or [0.0]))
        least = peers_waited + STARVED * (1 - peers_waited)
        if usage.waited < least or not gets_less:
            continue
        if usage.lacks >= expected + _MORE or _mostly_gets_less(record, number, [*peers]):
            waits = [other.waited for other in others.values()]
            facts = Facts(usage=usage, peers=float(np.median(waits)) if waits else None)
            # it would wait as the others do
            lost = (usage.ran + usage.waited) * (1 - (1 - usage.lacks) / max(1e-9, 1 - expected))
            suspect = _stopped(record, "processor", number, lost, facts)
            if suspect.activities:  # else it does none of the steps' work
                yield suspect


def _mostly_gets_less(record: Record, number: int, peers: Sequence[int]) -> bool:
    """Whether a process gets less of a processor than its peers nearly all the time.

    On a very busy machine all lack nearly everything, and each for some time more than the others.
    """
    known = record.usage_by_step
    if number not in known or not known.keys() & set(peers):
        return False
    # steps that are shorter than a second go together
    seconds = (np.cumsum(record.durations) // 1e9).astype(int)
    times = np.bincount(seconds, record.durations)

    def gets(process: int) -> Floats:
        ran, ready = (
            np.bincount(seconds, values[record.usual])
            for values in (known[process].ran, known[process].ready)
        )
        needs = ran + ready
        needed = needs >= _LEAST_RUNNING * times.clip(1)
        shares: Floats = np.full(len(needs), np.nan)
        np.divide(ran, needs, out=shares, where=needed & (needs > 0))
        return shares

    mine = gets(number)
    theirs = np.array([gets(peer) for peer in peers if peer in known])
    told = ~np.isnan(mine) & ~np.isnan(theirs).all(axis=0)
    if told.sum() < _LEAST_SECONDS:
        return False
    less = mine[told] <= _LESS * np.nanmedian(theirs[:, told], axis=0)
    return bool(less.mean() >= _MOSTLY)


def interpreter(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """Processes that stand still in their work while another thread of Python runs.

    Ranks that have the same thread are one cause: without it in one of them, the others take as
    long.
    """
    stopped: dict[tuple[str, str], list[Suspect]] = {}
    for number, usage in record.usage.items():
        if usage.thread is not None:
            lost = min(usage.stood_still, usage.thread.ran)
            if lost >= _LEAST_SHARE:
                suspect = _stopped(record, "interpreter", number, lost, Facts(usage=usage))
                alike = suspect.finding.group, usage.thread.name
                stopped.setdefault(alike, []).append(suspect)
    for several in stopped.values():
        yield _joined(sorted(several, key=lambda suspect: -suspect.finding.share))


def _stopped(record: Record, cause: Name, number: int, share: float, facts: Facts) -> Suspect:
    """A process that something stops for a share of the time, in whatever it works at."""
    run, process = record.run, record.run.processes[number]
    places = [
        place
        for place in dict.fromkeys(process.places[1:].tolist())
        if place >= 0 and not run.waiting_places[place]
    ]
    if number in run.edges:  # else it may wait for a call there
        places.append(OUTSIDE)
    own = {place: run.matrix("own", place, [process])[:, 0] for place in places}
    works = sum(times[record.usual].sum() for times in own.values())
    lost = share * record.loop
    part = min(1.0, lost / max(1.0, works))
    longest = max(own, key=lambda place: own[place][record.usual].sum(), default=OUTSIDE)
    return Suspect(
        finding=_finding(
            record,
            lost,
            cause=cause,
            worker=process.name,
            workers=[process.name],
            group=process.group,
            scope=record.name(longest, number),
            facts=facts,
        ),
        activities=[(number, place) for place in own],
        excess={(number, place): part * times for place, times in own.items()},
    )


def leaks(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """Processes whose memory grows with each step."""
    by_group: dict[str, list[int]] = {}
    grows_on: dict[str, float] = {}
    for number, usage in record.usage.items():
        if usage.growth:
            by_group.setdefault(record.run.processes[number].group, []).append(number)
            grows_on[usage.node] = grows_on.get(usage.node, 0.0) + usage.growth
    for group, numbers in by_group.items():
        numbers.sort(key=lambda number: -record.usage[number].growth)
        usage = record.usage[numbers[0]]
        steps = usage.available / grows_on[usage.node]
        seconds = steps * record.loop / len(record.usual) / 1e9
        is_near = seconds <= _FAR and steps <= _FAR_STEPS * len(record.usual)
        known = usage.available and is_near
        yield Suspect(
            finding=_finding(
                record,
                0.0,
                cause="leak",
                worker=usage.worker,
                workers=[record.usage[number].worker for number in numbers],
                group=group,
                scope=NAMES[ALL],
                facts=Facts(
                    processes=len(numbers),
                    usage=usage,
                    left=(seconds, round(steps)) if known else None,
                ),
            )
        )


def on_path(
    cause: Name, belongs: Callable[[Record, Activity, Kind], bool]
) -> Callable[[Record, Sequence[Finding]], Iterator[Suspect]]:
    """Select the activities on the path that `belongs` accepts, in all ranks of their groups.

    If only the rank on the path became faster, another rank would take as long in its place.
    """

    def select(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
        run = record.run
        pairs = {(finding.worker, finding.scope) for finding in findings}
        shares: dict[Activity, float] = {}
        for (number, place, kind), share in record.shares.items():
            is_known = (run.processes[number].name, record.name(place, number)) in pairs
            if not is_known and belongs(record, (number, place), kind):
                shares[number, place] = shares.get((number, place), 0.0) + float(share.mean())
        if sum(shares.values()) < _LEAST_SHARE:
            return
        by_scope: dict[tuple[str, str], float] = {}
        for activity, of_it in shares.items():
            scope = _scope_of(record, activity)
            by_scope[scope] = by_scope.get(scope, 0.0) + of_it
        worst = max(by_scope, key=by_scope.__getitem__)
        number, place = max(
            (activity for activity in shares if _scope_of(record, activity) == worst),
            key=shares.__getitem__,
        )
        where = {(run.processes[number].group, place) for number, place in shares}
        activities = [
            (process.number, place)
            for group, place in where
            for process in run.processes
            if process.group == group and place in process.places
        ]
        whose = [number for number, other in activities if other == place]
        names = {(run.processes[number].name, record.name(at, number)) for number, at in activities}
        said = sum(f.saves or 0.0 for f in findings if (f.worker, f.scope) in names)
        yield Suspect(
            finding=_finding(
                record,
                sum(shares.values()) * record.mean * len(record.usual),
                cause=cause,
                worker=run.processes[number].name,
                workers=sorted(run.processes[number].name for number in whose),
                group=run.processes[number].group,
                scope=record.name(place, number),
                facts=Facts(
                    processes=len(whose),
                    sent=_sent(record, number, place) if cause == "synchronisation" else (0.0, 0.0),
                    scopes=len({name for _, name in by_scope}),
                    itself=belongs is _loads_itself,
                ),
            ),
            activities=activities,
            parts=[
                functools.partial(_is_of, number),
                functools.partial(_is_at, place),
            ],
            doubt="busy" if record.lack else "",
            said=said,
        )

    return select


def _scope_of(record: Record, activity: Activity) -> tuple[str, str]:
    """The group of an activity's process, and the name of its place."""
    number, place = activity
    return record.run.processes[number].group, record.name(place, number)


def _sent(record: Record, process: int, place: int) -> tuple[float, float]:
    """The bytes that a process hands over at a place in a step, and how many of them in a second.

    Phases of a sample, such as of a version of the weights, may note more than the calls at the
    place do.
    """
    run, samples = record.run, record.run.samples
    names = [bool(SYNC_NAMES.search(name.lower())) for name in samples.names]
    noted = samples.notes.get("bytes", np.full(len(samples), np.nan))
    rows = np.flatnonzero(np.isin(samples.phase, np.flatnonzero(names)) & (noted > 0))
    if len(rows):
        seconds = (samples.end - samples.start)[rows].sum() / 1e9
        return float(noted[rows].mean()), float(noted[rows].sum() / max(1e-9, seconds))
    group = run.processes[process].group
    inside = [number for number in range(len(run.places)) if record.graph.is_below(number, place)]
    size = sum(record.sizes.get((group, number), 0.0) for number in inside)
    busy = run.matrix("busy", place, [run.processes[process]])[record.usual].mean() / 1e9
    return size, float(size / busy) if busy else 0.0


def _is_data(record: Record, activity: Activity, kind: Kind) -> bool:
    return kind == "data"


def _loads_itself(record: Record, activity: Activity, kind: Kind) -> bool:
    _, place = activity
    return kind == "work" and place >= 0 and record.run.places[place].name == LOADER


def _is_synchronisation(record: Record, activity: Activity, kind: Kind) -> bool:
    _, place = activity
    name = record.run.places[place].name.lower() if place >= 0 else ""
    # on a busy machine, ranks that have met may only wait for a processor
    return kind in (("work",) if record.lack else ("work", "handover")) and bool(
        SYNC_NAMES.search(name)
    )


def handed_over(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Handing over, with the time that calls are on their way if that is much in all ranks alike.

    Then arguments are unpickled there, and results when the driver has got them.
    """
    run = record.run
    late = {finding.group for finding in findings if finding.cause == "late start"}
    by_group: dict[str, float] = {}
    for (number, _, kind), share in record.shares.items():
        group = run.processes[number].group
        if kind == "dispatch" and group not in late and not record.lack:
            by_group[group] = by_group.get(group, 0.0) + float(share.mean())
    alike: set[str] = set()
    if sum(by_group.values()) >= _LARGE:
        usual = arrivals.usual_delays(run, by_group)
        alike = {
            group
            for group, share in by_group.items()
            if usual.get(group, 0.0) >= _MOST_OF_IT * share * record.mean
        }
    is_much = sum(by_group[group] for group in alike) >= _LARGE

    def belongs(record: Record, activity: Activity, kind: Kind) -> bool:
        number, place = activity
        if kind == "dispatch":
            return is_much and run.processes[number].group in alike
        is_got = kind == "handover" and place >= 0 and run.places[place].name == "ray.get"
        return (is_much and is_got) or _is_synchronisation(record, activity, kind)

    yield from on_path("synchronisation", belongs)(record, findings)


def _is_driver(record: Record, activity: Activity, kind: Kind) -> bool:
    works = activity[0] == record.run.driver and kind == "work"
    return works and not _is_synchronisation(record, activity, kind)


def driver_in_scopes(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """What a driver does in scopes, which is not to make its calls, of which there may be many."""

    def is_in_scope(record: Record, activity: Activity, kind: Kind) -> bool:
        return activity[1] >= 0 and _is_driver(record, activity, kind)

    has_few = len(record.run.processes) <= _MANY_CALLED
    if has_few and all(finding.cause != "driver" for finding in findings):
        yield from on_path("driver", is_in_scope)(record, findings)


def _bottlenecks(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """The group and place with the largest share of the path, if it works there."""
    run = record.run
    shares: dict[tuple[str, int], dict[int, float]] = {}
    for (number, place, kind), share in record.shares.items():
        if kind == "work" and not record.is_open((number, place, kind)):
            if place != OUTSIDE and not _is_work_of_steps(record, number, place):
                continue
            by_rank = shares.setdefault((run.processes[number].group, place), {})
            by_rank[number] = by_rank.get(number, 0.0) + float(share.mean())
    if not shares:
        return
    (group, place), by_rank = max(shares.items(), key=lambda item: sum(item[1].values()))
    number = max(by_rank, key=by_rank.__getitem__)
    activities = [
        (process.number, place)
        for process in run.processes
        if process.group == group and place in process.places
    ]
    finding = _finding(
        record,
        sum(by_rank.values()) * record.mean * len(record.usual),
        cause="bottleneck",
        worker=run.processes[number].name,
        workers=sorted({run.processes[number].name for number, _ in activities}),
        group=group,
        scope=record.name(place, number),
        # children that run tasks share a rank
        facts=Facts(processes=len({run.processes[number].name for number, _ in activities})),
    )
    # steps of ranks that do not wait for each other overlap, and have more seconds than the run
    share_of_run = sum(by_rank.values()) * record.in_steps
    yield Suspect(finding=attrs.evolve(finding, share=share_of_run), activities=activities)


def _is_work_of_steps(record: Record, number: int, place: int) -> bool:
    """Whether a process may do faster in each step what it does at a place.

    Nobody can sleep faster. And a thread may run as long as the job, beside the work; but those of
    a pool are called for it.
    """
    name, process = record.run.places[place].name, record.run.processes[number]
    if not name.endswith(THREAD):
        return name != SLEEP
    at_place, ledger = process.places == place, process.ledger
    calls = int(at_place[ledger.spans["place"]].sum())
    calls += int(ledger.folds["count"][at_place[ledger.folds["place"]]].sum())
    return 2 * calls >= len(record.run.steps)


# Which activities: those of a server


def queued_for(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Workers for which calls or messages queue, or that work nearly all the time for several.

    Of a group of several, calls also queue for one that is slow, which is said then.
    """
    run = record.run
    with_findings = {finding.group for finding in findings}
    calls: dict[int, list[Call]] = {}
    for window in record.windows:
        for number, of_window in record.graph.plan(window).calls.items():
            calls.setdefault(number, []).extend(of_window)
    trainers = set(run.samples.process[run.samples.of(TRAINED)].tolist())
    for group, processes in run.groups.items():
        numbers = [process.number for process in processes]
        if trainers.intersection(numbers):
            continue  # samples are to wait for them, in a buffer
        if any(run.starts_others(process) for process in processes):
            continue  # what it gets are the answers of processes that it has started for that
        of_group = [calls.get(number, []) for number in numbers]
        callers = [
            {request[0] for call in of_one for request in call.requests}.difference(numbers)
            for of_one in of_group
        ]
        # of ranks that mark the steps, half the time saves much, whoever waits for them
        if len(numbers) > 1 and (run.edges.keys() & set(numbers) or group in with_findings):
            continue
        # a worker with peers is compared with them, unless several others call each of them
        if min(map(len, callers)) < (1 if len(numbers) == 1 else 2):
            continue
        queue_time = float(sum(call.queued for call in chain.from_iterable(of_group)))
        work_time = float(run.work(processes)[record.replayed].sum())
        share = queue_time / max(1.0, queue_time + work_time)
        busy = work_time / sum(run.steps[step].duration for step in record.replayed)
        is_busy = len(numbers) == 1 and busy >= _BUSY and _serves_several(run, of_group[0])
        if share >= _QUEUED or is_busy:
            requests = chain.from_iterable(of_group)
            count = sum(any(r[0] not in numbers for r in call.requests) for call in requests)
            a_call = queue_time / max(1, count)
            a_step = work_time / len(processes) / len(record.replayed)
            places = {place for process in processes for place in process.places[1:].tolist()}
            works = [place for place in sorted(places) if not run.waiting_places[place]]
            finding = _finding(
                record,
                a_step * len(record.usual),
                cause="server",
                worker=processes[0].name,
                workers=[process.name for process in processes],
                group=group,
                scope=record.name(works[0] if len(works) == 1 else ALL),
                facts=Facts(
                    processes=len(processes),
                    queued=(share, a_call / 1e9) if share >= _QUEUED else (0.0, 0.0),
                    busy=busy,
                    event_loop=any(t.task for process in processes for t in process.ledger.tracks),
                ),
            )
            yield Suspect(
                finding=finding,
                activities=[(number, place) for number in numbers for place in works],
                parts=[functools.partial(_is_at, place) for place in works],
                doubt="several" if len(processes) > 1 else "",
            )


def limited(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Workers whose calls wait for each other at a semaphore or lock of their event loop."""
    run = record.run
    named = {finding.group for finding in findings if finding.cause == "server"}
    for group, processes in run.groups.items():
        places = {place for process in processes for place in process.places[1:].tolist()}
        for limit in sorted(places) if group not in named else ():
            method = run.places[limit].parent
            if run.places[limit].name not in LIMITS or method < 0:
                continue
            waits = run.matrix("busy", limit, processes)[record.replayed].sum()
            share = waits / max(1.0, run.matrix("busy", method, processes)[record.replayed].sum())
            if share < _QUEUED:
                continue
            activities = [
                (process.number, place)
                for process in processes
                for place in sorted(places)
                if record.graph.is_below(place, method)
                and (not run.waiting_places[place] or run.places[place].name == SLEEP)
            ]
            on_path = sum(
                float(share.mean())
                for (number, place, _), share in record.shares.items()
                if (number, place) in activities
            )
            calls = run.matrix("calls", method, processes)[record.replayed].sum()
            finding = _finding(
                record,
                on_path * record.mean * len(record.usual),
                cause="server",
                worker=processes[0].name,
                workers=[process.name for process in processes],
                group=group,
                scope=record.name(method),
                facts=Facts(
                    processes=len(processes),
                    queued=(float(share), float(waits / max(1.0, calls)) / 1e9),
                    event_loop=True,
                    limit=run.places[limit].name.partition(".")[0].lower(),
                ),
            )
            doubt: Doubt = "several" if len(processes) > 1 else ""
            yield Suspect(finding=finding, activities=activities, doubt=doubt)


def _serves_several(run: Run, calls: Iterable[Call]) -> bool:
    """Whether several processes call a worker, beside the replies that it waits for itself."""
    return 1 < len(
        {
            process
            for call in calls
            if call.place == OUTSIDE or run.places[call.place].name not in CALLS
            for process, _, _ in call.requests
        }
    )


def _is_of(process: int, activity: Activity) -> bool:
    return activity[0] == process


def _is_at(place: int, activity: Activity) -> bool:
    return activity[1] == place


# Which activities: those of some steps only, and between steps


def between_steps(record: Record, _: Sequence[Finding]) -> Iterator[Suspect]:
    """The time between steps, and who works then if a ledger tells."""
    run, count = record.run, len(record.gaps[0])
    total = float((record.gaps[1] - record.gaps[0]).sum())
    if total < _LEAST_SHARE * record.loop:  # steps in which a rank was killed lie between, too
        return
    sums = np.zeros((len(run.processes), len(run.places) + 1))
    for process in run.processes:
        rows = run.sums_between(process, *record.gaps)
        own = np.where(run.waiting_places[rows["place"]], 0.0, rows["own"])
        np.add.at(sums[process.number], rows["place"], own)
    number = run.driver
    if number is None:  # whoever marks no steps may go on working
        number = max(run.edges, key=lambda rank: float(sums[rank].max()))
    process, place = run.processes[number], int(sums[number].argmax())
    works = sums[number, place] >= 0.5 * total
    others_work = bool((np.delete(sums.sum(axis=1), number) >= 0.5 * total).any())
    if run.driver is not None and record.is_blind and others_work:
        return  # the loop may go on then: nothing tells for whom
    is_outside = total - sums[number].sum() >= 0.5 * total
    activity = number, OUTSIDE if is_outside else place
    # ranks that mark their own steps all lose that time; a driver may do so while others work
    activities = [activity] if run.driver is not None and (works or is_outside) else []
    finding = _finding(
        record,
        total,
        a_step=count,
        cause="between steps",
        worker=process.name,
        workers=[process.name] if works or run.driver is not None else [],
        group=process.group,
        scope=BETWEEN_STEPS,
        steps=count,
        of=count,
        saves=1 - record.in_steps,
        facts=Facts(inside=record.name(place) if works else ""),
    )
    # where a lone process is in its steps for less than half of the time, they may be parts of one
    if run.driver is None and len(run.edges) == 1 and record.in_steps < 0.5:
        yield Suspect(finding=attrs.evolve(finding, saves=None), doubt="part")
        return
    saves = None if activities else finding.saves
    yield Suspect(finding=finding, activities=activities, saves=saves)


def between_own_steps(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """The time between the steps of each rank, where ranks do not wait for each other.

    The steps of all overlap then, so that hardly anything lies between them.
    """
    run = record.run
    if not run.edges or any(finding.cause == "between steps" for finding in findings):
        return
    own = [gaps(run, run.processes[number]) for number in run.edges]
    total = float(np.median([(ends - starts).sum() for starts, ends in own]))
    if total < _LEAST_SHARE * record.loop:
        return
    first, count = run.processes[next(iter(run.edges))], len(record.gaps[0])
    finding = _finding(
        record,
        total,
        a_step=count,
        cause="between steps",
        worker=first.name,
        workers=[],
        group=first.group,
        scope=BETWEEN_STEPS,
        steps=count,
        of=count,
    )
    yield Suspect(finding=finding, activities=[(number, OUTSIDE) for number in run.edges])


def only_few(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Places that only a few ranks enter, in most steps, while the others wait."""
    for occasion in _others_than(record.occasions.rare, record, findings):
        if occasion.is_usual(record) and not occasion.is_of_most(record):
            yield _occasion(record, "only this rank", occasion)


def now_and_then(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Places that only a few ranks enter, in some steps; pauses that are regular, or a group's."""
    occasions = [*record.occasions.rare, *record.occasions.pauses]
    for occasion in _others_than(occasions, record, findings):
        is_pause = len(occasion.more or ()) == 1
        regular = not is_pause or occasion.period(record) is not None
        if regular and len(occasion.rows) > 1 and not occasion.is_usual(record):
            yield _occasion(record, "recurring", occasion)


def pauses(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Several steps, at irregular intervals, in which a rank spent unusually long at a place."""
    for occasion in _others_than(record.occasions.pauses, record, findings):
        is_of_one = len(occasion.processes) == 1
        if is_of_one and len(occasion.rows) > 1 and occasion.period(record) is None:
            yield _occasion(record, "pauses", occasion)


def long_pauses(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """Single steps with such a pause, if very long: a machine may pause for many reasons."""
    for occasion in _others_than(record.occasions.pauses, record, findings):
        if len(occasion.rows) == 1 and occasion.cost >= _LARGE * record.loop:
            yield _occasion(record, "pauses", occasion)


def once(record: Record, findings: Sequence[Finding]) -> Iterator[Suspect]:
    """The most expensive of the single slow steps, if there is no other finding of that kind."""
    others = {"pauses", "garbage collection", "recurring", "only this rank"}
    if others.isdisjoint(finding.cause for finding in findings):
        singles = (
            occasion
            for occasion in _others_than(record.occasions.pauses, record, findings)
            if len(occasion.rows) == 1
        )
        for occasion in islice(singles, 1):
            yield _occasion(record, "once", occasion)


def _others_than(
    occasions: Iterable[Occasion], record: Record, findings: Sequence[Finding]
) -> Iterator[Occasion]:
    """The occasions that no finding covers, except kinds of steps such as evaluations."""
    workers = {finding.worker for finding in findings if finding.cause in ("pauses", *_STOPS)}
    pairs = {(finding.worker, finding.scope) for finding in findings}
    late = {finding.worker for finding in findings if finding.cause == "late start"}
    by_turns = {
        (finding.group, finding.scope)
        for finding in findings
        if finding.cause == "imbalance" and not finding.workers
    }
    for occasion in occasions:
        number = occasion.processes[0]
        worker = record.run.processes[number].name
        places = {(worker, record.name(place, number)) for place in occasion.places}
        was_late = OUTSIDE in occasion.places and worker in late
        group, worst = record.run.processes[number].group, record.name(occasion.worst, number)
        of_turns = occasion.more is not None and (group, worst) in by_turns
        if worker in workers or of_turns or was_late or not pairs.isdisjoint(places):
            continue
        if not occasion.is_kind(record):
            yield occasion


def _occasion(record: Record, cause: Name, occasion: Occasion) -> Suspect:
    run, count = record.run, len(occasion.rows)
    within = [record.usual[row] for row in occasion.rows]
    starvation = faults = 0.0
    if occasion.more is not None:
        process = run.processes[occasion.processes[0]]
        faults = faulted_more(run, process, within)
        waits = waited_more(run, process, within)
        if waits >= _MOST_OF_IT * occasion.cost:
            took = float(record.durations[occasion.rows].sum())
            starvation = min(1.0, waits / took)
    workers = [run.processes[number].name for number in occasion.processes]
    activities = [(number, place) for number in occasion.processes for place in occasion.places]
    place = occasion.places[0]
    excess = {(number, place): more for number, more in (occasion.more or {}).items()}
    finding = _finding(
        record,
        occasion.cost,
        a_step=1 if count == 1 else len(record.usual),
        cause=cause,
        worker=workers[0],
        workers=workers,
        group=run.processes[occasion.processes[0]].group,
        scope=record.name(occasion.worst, occasion.processes[0]),
        steps=count,
        facts=Facts(
            processes=len(workers),
            at=occasion.numbers(record),
            every=occasion.period(record),
            rare=occasion.more is None,
            took=float(record.durations[occasion.rows[0]]) / 1e9,
            starved=starvation,
            faults=faults / count if faults * FAULT >= _MOST_OF_IT * occasion.cost else 0.0,
        ),
    )
    longer = np.sum([more[within] for more in excess.values()], axis=0) if excess else None
    known = longer is not None and stragglers.are_awaited(
        run, occasion.processes, np.array(within), longer
    )
    return Suspect(
        finding=finding,
        activities=activities,
        excess=excess,
        within=within,
        known=known,
        doubt="others" if occasion.among_others else "",
    )


def _finding(record: Record, cost: float, a_step: int = 0, **about: Any) -> Finding:
    """Build a finding from its total cost in nanoseconds.

    Args:
        a_step: the number of steps to divide the cost by; 0 means all steps that count.
    """
    count = len(record.usual)
    about = {"steps": count, "of": count, **about}
    seconds = cost / 1e9 / (a_step or count)
    return Finding(share=cost / record.loop, seconds=seconds, **about)


CAUSES: Sequence[Cause] = (
    Cause(collections, usual, _LEAST_SHARE, "large", blind=True),
    Cause(starved, usual, _LEAST_SHARE, "large", blind=True),
    Cause(interpreter, usual, _LEAST_SHARE, "large", blind=True),
    Cause(slow("rank"), peers_median, 0.02, "lasting", blind=True, together=True),
    Cause(slow("node"), peers_median, 0.02, "lasting", blind=True),
    Cause(slow("late start"), sooner, 0.02, "lasting", blind=True),
    Cause(slow("drift"), peers_median, 0.02, "large", blind=True),
    Cause(another_part, groups_mean, 0.02, "hint", blind=True),
    Cause(another_part_or_slow, peers_median, _LARGE, "hint"),
    Cause(on_path("driver", _is_driver), between_steps_only, 0.1, "lasting"),
    Cause(driver_in_scopes, between_steps_only, _LARGE, "lasting"),
    Cause(on_path("data", _is_data), but_for_a_processor, 0.05, "lasting"),
    Cause(on_path("data", _loads_itself), nothing, 0.1, "hint"),
    Cause(handed_over, but_for_a_processor, 0.1, "lasting"),
    Cause(queued_for, half, _LEAST_SHARE, "lasting"),
    Cause(limited, half, _LEAST_SHARE, "lasting"),
    Cause(by_turns, groups_mean, _LEAST_SHARE, "hint"),
    Cause(between_steps, in_steps, 0.05, "named", blind=True),
    Cause(between_own_steps, in_steps, 0.05, "lasting"),
    Cause(only_few, nothing, _LARGE, "hint"),
    Cause(now_and_then, usual, _LEAST_SHARE, "large", blind=True),
    Cause(pauses, usual, _LEAST_SHARE, "large", blind=True),
    Cause(long_pauses, usual, _LEAST_SHARE, "hint"),
    Cause(once, None, 0.02, "hint", blind=True),
    Cause(leaks, None, 0.0, "named", blind=True),
)
"""The causes to look for, in this order: later ones skip what earlier ones have found."""
_LAST = Cause(_bottlenecks, nothing, _BOTTLENECK, "hint")

"""Who is slower than the others of its group, in more steps than chance explains.

Ranks of a group do the same work. If none differs, each is the slowest of them equally often. So
the test is a binomial one for a set of ranks at every place, corrected for all sets of that size,
and with Holm's correction for all places. Two ranks are compared by step in the same way, as a sign
test. Where work varies much, a slow rank is seldom the slowest: of more than two ranks, a rank-sum
test counts as well. Steps that resemble those before count less.

What is certain may still be worth nothing: with enough steps the slowest of equal ranks is known
beyond doubt. So a set must also cost something that the other ranks do not cost: what it takes
longer than the slowest of them.

Ranks of a group may also have two parts in a job, such as stages of a pipeline or two kinds of
environments. So nobody is slow if those who take longer are exactly half of the ranks, or exactly
those who have one part by the record: no time tells that from having more to do. But ranks that
take whichever call is next have one part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import odds, roles
from gpuprof._analysis.path import CALLS
from gpuprof._analysis.run import (
    OUTSIDE,
    Integers,
    Process,
    Run,
    by_name,
    of_others,
    of_ranks,
    rows_of,
)
from gpuprof._analysis.waits import BARRIER, DATA
from gpuprof._artifacts.ledger import RELEASES, WAITS
from gpuprof._session.instruments.collectives import MESSAGES

Floats = NDArray[np.float64]

CERTAIN = 0.01
"""The corrected probability of chance below which a straggler is named."""
LEAST_SHARE = 0.03
"""Share of a step by which a straggler must exceed the others' median to be named. It must exceed
the slowest of the others by as much, counting only the steps in which the straggler is slower."""
_LEAST_RANKS = 4
"""Number of ranks from which half of them may have another part in the job."""
_TWO_KINDS = 4.0
"""Standard deviations by which the means of two kinds of times must differ. If ranks differ evenly,
those of their longer and their shorter half differ by three and a half."""
_DIFFERS = 0.05
"""By how much ranks must differ at a place for it to tell about their nodes: where all take as
long, they may wait for each other."""
_NO_TURNS = 1e-5
"""The probability that one of the ranks is the slowest so often by chance, below which they do not
take turns."""
_BY_TURNS = 1.4
"""Twice the largest share of the steps in which one rank may be the slowest, if ranks are slow by
turns."""
_MANY_RANKS = 5
"""Number of ranks from which `imbalanced` looks at how the longest times spread over the steps."""
_SURE = 3.5
"""Standard deviations by which more steps must have a longest time than by chance."""
_AGAIN = 0.05
"""The probability of chance below which successive steps have the same slowest rank too often."""
_BY_TIME = 0.2
"""Share of a rank's excess that may remain at the others' number of calls, if the rank only makes
more calls."""
_DRIFT = 1.2
"""How many times as slow as in the first quarter of the steps a rank must be in the last quarter,
each relative to the other ranks."""
_PART_OF_RUN = 0.75
"""The largest share of the steps in which a rank may be slow for it to be slow for a while."""
_MOST_PARTS = 4
"""Parts of the run in which a rank may be slow: of more, it takes fewer words to call it pauses."""
_PEERS = 4
"""Number of ranks below which a rank that is fast for a while may make another one look slow."""
_APART = 0.9
"""Share of the steps in which a rank that is slow for a while must be nearer to its slow level, and
share of the others in which it must be nearer to its usual one."""
_RISING = 0.6
"""Spearman's correlation with the step, from which a rank may get slower."""
_RISING_OF_TWO = 0.8
"""The same of two ranks: there are no others to show how speeds wander anyway."""
_LEAST_ROWS = 4
"""Times of a rank below which nothing tells whether they grow."""
_ALMOST = 0.999
"""The largest correlation to reckon with, so that its logarithm is finite."""
_LEAST_ODD = 5
"""Odd number of ranks from which nearly half of them count as half: one of three does not."""
_MOST_RANKS = 8
"""Ranks in a set. To tell which ranks are slow, larger sets would need more steps than there are.
"""
_NEARLY_ALL = 0.8
"""Share of what a set costs, from which a smaller set replaces it."""
_SHARED = 0.25
"""How much ranks that share calls differ in their work, at most, relative to their calls: in logs.
"""
_FAR = 4.0
"""Standard deviations by which ranks that do not make the same calls must differ from the others.
"""
_FEW_RANKS = 8
"""Number of ranks below which the median of their differences tells little: two may be alike."""
_LEAST_CALLS = 3
"""Calls that a rank needs for the time of a call to be known."""
LEAST_STEPS = 8
"""Steps below which nobody is named."""
ALL = -2
"""The place that stands for all scopes of a rank together."""
BEFORE = -3
"""The place that stands for the time before the first scope of a step."""
_ALIKE = 0.5
"""Share of the mean excess on a node that each worker there must have if the node is slow."""

Kind = Literal["rank", "node", "late start", "drift", "imbalance"]


@attrs.define(eq=False)
class Straggler:
    """Ranks or a node that are slower than the others at a place; a hypothesis until tested.

    Args:
        kind: ``rank``; ``node``: all workers on it; ``late start``: it begins its steps late;
            ``drift``: it gets slower, or is slow for a while; ``imbalance``: ranks that may be
            slow, or have another part than the others.
        group: its group; for a node, the group with the largest excess.
        names: the names of the workers, the slowest first, or of the node.
        processes: positions in `Run.processes`.
        place: where they lose most: a position in `Run.places`, `ALL` or `BEFORE`.
        slowest: in how many steps it was the slowest.
        steps: how many steps were examined.
        probability: the probability of this by chance; in what `find` returns, corrected for the
            number of ranks and places.
        own: nanoseconds by step of the slowest of its ranks.
        others: nanoseconds by step, the median of the other ranks.
        most: nanoseconds by step of the slowest of the other ranks.
        alone: whether no other worker on its node could be compared, so that the node may be slow.
        late_for: of a late start, the position in `Run.places` of what it comes late to; ``-1`` for
            its first scope in a step.
        awaited: whether all other workers wait there for it, so that it waits for none of them.
        parts: the first and the last row of each part of the run in which it is slow, if it is not
            slow in all of it.
    """

    kind: Kind
    group: str
    names: tuple[str, ...]
    processes: tuple[int, ...]
    place: int
    slowest: int
    steps: int
    probability: float
    own: Floats
    others: Floats
    most: Floats
    alone: bool = False
    late_for: int = -1
    awaited: bool = False
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def excess(self) -> float:
        """Nanoseconds per step above the median of the others."""
        return self._a_step(self.own - self.others)

    @property
    def gain(self) -> float:
        """Nanoseconds per step above the slowest of the others: the cost that no other rank has."""
        return self._a_step((self.own - self.most).clip(0))

    @property
    def ratio(self) -> float:
        """Its time divided by the median of the others."""
        others = float(self.others.mean())
        return float(self.own.mean()) / others if others > 0 else math.inf

    @property
    def grew(self) -> tuple[float, float]:
        """Nanoseconds in the first and in the last quarter of the steps, on average.

        Of a rank that is slow for a while, the medians of the other steps, and of these.
        """
        if self.parts:
            is_within, compared = _within(self.parts, len(self.own)), self.own + self.others > 0
            usually, then = (self.own[rows & compared] for rows in (~is_within, is_within))
            return float(np.median(usually)), float(np.median(then))
        quarter = max(1, len(self.own) // 4)
        return float(self.own[:quarter].mean()), float(self.own[-quarter:].mean())

    def to_capture(self, usual: Sequence[int]) -> list[int]:
        """The positions of two steps to capture, far enough apart not to disturb each other.

        They are the most typical steps, as what happened once will not happen again in a capture.
        """
        differences = self.own - self.others
        shows = np.ones(len(differences), bool)
        if self.parts:
            shows = _within(self.parts, len(differences))
        untypical = np.abs(differences - np.median(differences[shows]))
        first, *others = np.array(usual)[np.argsort(untypical, kind="stable")].tolist()
        return sorted([first, *[position for position in others if abs(position - first) > 2][:1]])

    def spread(self, rows: NDArray[np.int64], count: int) -> None:
        """Extend the times to all steps, with 0 in the steps that were not compared.

        Args:
            rows: the steps that were.
            count: how many steps there are.
        """
        for name in ("own", "others", "most"):
            times = np.zeros(count)
            times[rows] = getattr(self, name)
            setattr(self, name, times)
        self.parts = tuple((int(rows[first]), int(rows[last])) for first, last in self.parts)

    def _a_step(self, differences: Floats) -> float:
        if self.place == BEFORE and not self.parts:
            # ranks are called one after the other, so the last is late in every step by a little:
            # a few steps in which it was late by much must not add up to a habit
            return float(np.median(differences))
        return float(differences.mean())


def find(run: Run) -> list[Straggler]:
    """The stragglers of a run, the most expensive first."""
    usual = run.usual
    if len(usual) < LEAST_STEPS:
        return []
    step = float(np.mean([run.steps[position].duration for position in usual]))
    call_times = _Called(run)
    suspicions = [
        suspicion
        for group in run.groups
        for suspicion in _of_group(run, group, usual, step, call_times)
    ]
    probabilities = odds.holm([suspicion.probability for suspicion in suspicions])
    candidates = [
        attrs.evolve(suspicion, probability=probability)
        for suspicion, probability in zip(suspicions, probabilities, strict=True)
        if probability < CERTAIN and min(suspicion.excess, suspicion.gain) >= LEAST_SHARE * step
    ]
    return _settled(run, candidates, usual)


def members(run: Run, group: str) -> dict[str, list[Process]]:
    """The processes of each rank of a group: several if the rank was restarted.

    Leaves out ranks that were killed, which did nothing in later steps, and ranks whose scopes were
    switched off. The others cannot be compared with either.
    """
    unknown = run.gone | run.untimed
    return {
        name: processes
        for name, processes in by_name(run.groups[group]).items()
        if not unknown.issuperset(process.number for process in processes)
    }


def own_time(run: Run, place: int, ranks: Sequence[Sequence[Process]]) -> Floats:
    """Nanoseconds of work in a place itself, by step and rank. A wait for data counts as work.

    Time in a place that may wait for others is 0: a rank that takes longer there may be waiting.
    So is a wait for data if most ranks wait for data: while a rank waits for the others, its loader
    goes on, so it then waits less for data.
    """
    processes = list(chain.from_iterable(ranks))
    times = run.matrix("own", place, processes)
    if place == OUTSIDE:
        return of_ranks(times, ranks)
    if run.may_wait[place]:
        return np.zeros((len(run.steps), len(ranks)))
    if run.places[place].waits_for != DATA:
        times = times - run.matrix("waiting", place, processes)
    by_rank = of_ranks(times, ranks)
    if run.places[place].waits_for == DATA and _most_wait(run, by_rank):
        return np.zeros(by_rank.shape)
    return by_rank


def _most_wait(run: Run, waits: Floats) -> bool:
    """Whether most ranks wait in most steps, given the nanoseconds by step and rank."""
    durations = [run.steps[position].duration for position in run.usual]
    if not durations:
        return False
    usual_waits = np.median(waits[run.usual], axis=0)
    long = usual_waits >= LEAST_SHARE * float(np.median(durations))
    return bool(2 * long.sum() > len(long))


def pace(run: Run, place: int, ranks: Sequence[Sequence[Process]]) -> Floats:
    """The same, as if all ranks made equally many calls in each step.

    Ranks that run freely, take turns, or work in some steps only are compared by the time of a
    call, averaged over as many steps as each of them needs for a call.
    """
    times = own_time(run, place, ranks)
    width, calls = _steps_of_a_call(run, place, ranks)
    if not width:
        return times
    counts = calls.sum(axis=0)
    doing = counts >= _LEAST_CALLS
    edges = np.arange(0, len(run.usual), width)
    own, calls = (np.add.reduceat(rows, edges, axis=0) for rows in (times[run.usual], calls))
    on_average = own.sum(axis=0) / counts.clip(1)
    a_call = np.where(calls >= 0.5, own / calls.clip(0.5), on_average)
    a_step = np.where(doing, a_call * np.median(counts[doing]) / len(run.usual), 0)
    times[run.usual] = np.repeat(a_step, width, axis=0)[: len(run.usual)]
    return times


def _steps_of_a_call(
    run: Run, place: int, ranks: Sequence[Sequence[Process]]
) -> tuple[int, Floats]:
    """In how many steps each rank makes a call; 0 if in most steps each makes its usual number.

    Returns:
        That, and the calls by step that counts and rank.
    """
    processes = list(chain.from_iterable(ranks))
    calls = of_ranks(run.matrix("calls", place, processes), ranks)[run.usual]
    doing = calls.sum(axis=0) >= _LEAST_CALLS
    if not doing.any():
        return 0, calls
    counts = calls.sum(axis=0)[doing]
    works = own_time(run, place, ranks)[run.usual].sum(axis=0)[doing].clip(1)
    # where whoever is free gets the next call, some make more calls in the same time; a rank that
    # marks its steps makes those of its program
    are_called = not run.edges.keys() & {process.number for process in processes}
    is_shared = are_called and np.ptp(np.log(works)) < _SHARED * np.ptp(np.log(counts))
    if _are_steady(calls[:, doing]) and not is_shared:
        return 0, calls
    return math.ceil(len(run.usual) / counts.min()), calls


def is_steady(run: Run, place: int, ranks: Sequence[Sequence[Process]]) -> bool:
    """Whether each rank makes its usual number of calls at a place in most steps."""
    return not _steps_of_a_call(run, place, ranks)[0]


def steady_work(run: Run, group: str) -> dict[int, Floats]:
    """Nanoseconds of work by step and rank, of each place that all ranks have in each step.

    Only of places in which ranks make equally many calls in most steps. In a step in which a rank
    makes more, the time of as many as usual counts.
    """
    ranks = list(members(run, group).values())
    work = {}
    for place in common_places(run, group):
        width, calls = _steps_of_a_call(run, place, ranks)
        times = own_time(run, place, ranks)
        if not width and len(_doing(times[run.usual])) == len(ranks):
            times[run.usual] /= (calls / np.median(calls, axis=0).clip(1)).clip(1)
            work[place] = times
    return work


def shared_calls(
    run: Run, place: int, ranks: Sequence[Sequence[Process]], slow: NDArray[np.bool_]
) -> Floats | None:
    """The calls of each rank, if ranks share calls so that slow ones get fewer of them.

    Then all ranks work about equally long. If each had its calls to make, slow ones would work
    longer by as much as their calls take longer.
    """
    width, calls = _steps_of_a_call(run, place, ranks)
    times = own_time(run, place, ranks)[run.usual].sum(axis=0)
    counts: Floats = calls.sum(axis=0)
    if not width or counts.min() < _LEAST_CALLS:
        return None
    longer = (times / counts)[slow].mean() / max(1.0, np.median((times / counts)[~slow]))
    works = times[slow].mean() / max(1.0, np.median(times[~slow]))
    return counts if longer > 1 and works < (1 + longer) / 2 else None


def _share_calls(
    run: Run,
    places: Iterable[int],
    ranks: Sequence[Sequence[Process]],
    slow: NDArray[np.bool_],
) -> bool:
    """Whether ranks share calls at any of some places."""
    return any(shared_calls(run, place, ranks, slow) is not None for place in places)


def _are_steady(calls: Floats) -> bool:
    """Whether each rank makes its usual number of calls in most steps, one or more."""
    usual_calls = np.median(calls, axis=0).round()
    is_usual = np.abs(calls - usual_calls) < 0.25  # a call in two steps counts partly in each
    return bool(usual_calls.all() and is_usual.mean() >= roles.STEADY)


def _of_group(
    run: Run, group: str, usual: Sequence[int], step: float, call_times: _Called
) -> list[Straggler]:
    workers = members(run, group)
    names, ranks = list(workers), list(workers.values())
    if len(ranks) < 2:
        return []
    numbers = [tuple(process.number for process in rank) for rank in ranks]
    suspicions: list[Straggler | None] = []
    total = shared_work(run, group)[usual]
    parts = roles.parts(run, list(chain.from_iterable(ranks)))
    of_places = roles.by_places(run, list(chain.from_iterable(ranks)))
    widest, least, seldom = 1, LEAST_SHARE * step, np.zeros(total.shape)
    # a rank that is slow by chance in more turns than the others is no straggler
    by_turns = {place for place in common_places(run, group) if imbalanced(run, group, place)}
    for place in common_places(run, group):
        at_place = pace(run, place, ranks)[usual]
        rows = _rows_to_compare(at_place)
        times = at_place[rows]
        doing = _doing(times)
        if len(doing) > 1 and float(times[:, doing].mean(axis=0).max()) >= least:
            some = [names[column] for column in doing], [numbers[column] for column in doing]
            active_ranks = [ranks[column] for column in doing]
            steps_a_call, _ = _steps_of_a_call(run, place, ranks)
            width = max(1, steps_a_call)
            widest = max(widest, width)
            if width > 1 and len(_doing(at_place)) == len(ranks):
                seldom += at_place
            calls = [] if steps_a_call else roles.by_calls(run, place, active_ranks)
            suspicion = _by_role(
                times[:, doing], group, *some, place, [*parts, *calls], width, least,
                functools.partial(_share_calls, run, [place], active_ranks),
            )  # fmt: skip
            if suspicion is not None and suspicion.kind == "imbalance":
                parts.append(frozenset(suspicion.processes))
            changing = _changing(times[:, doing], group, *some, place, width)
            for hypothesis in (suspicion, *changing):
                if hypothesis is not None:
                    hypothesis.spread(rows, len(usual))
                    hypothesis.awaited = place == OUTSIDE and _awaited(run, hypothesis, usual)
            if place not in by_turns and not _only_calls_more(
                run, suspicion, active_ranks, [place]
            ):
                suspicions.append(suspicion)
            suspicions += changing
    # work that is not in each step leaves fewer observations of all work than there are of the rest
    if 2 * seldom.sum() <= total.sum():
        total, widest = total - seldom, 1
    in_all = _by_role(
        total, group, names, numbers, ALL, parts, widest, least,
        functools.partial(_share_calls, run, common_places(run, group), ranks),
    )  # fmt: skip
    if not by_turns and not _only_calls_more(run, in_all, ranks, common_places(run, group)):
        suspicions.append(in_all)
    late: list[Straggler] = []
    # children that run Ray's tasks share a rank: whichever is free gets the next task
    if len({rank[0].rank for rank in ranks}) > 1:
        delays = _delays(run, ranks, call_times)[usual]
        late = [
            attrs.evolve(each, awaited=_awaited(run, each, usual))
            for each in _late(delays, group, names, numbers, least)
            if _begin_alike(run, ranks, each)
        ]
    later = []
    for place, delays, inside in _arrivals(run, group, ranks):
        for arrival in _late(delays[usual], group, names, numbers, least):
            suspects = np.isin(names, arrival.names)
            waits = inside[usual][:, ~suspects].min(axis=1) - inside[usual][:, suspects].max(axis=1)
            leads = arrival.own - arrival.most
            if arrival.parts:
                during = _within(arrival.parts, len(waits))
                waits, leads = waits[during], leads[during]
            awaited = bool(np.median(waits) >= _NEARLY_ALL * np.median(leads.clip(0)) > 0)
            later.append(attrs.evolve(arrival, late_for=place, awaited=awaited))
            # the same delay, if that place is their first scope
            late = [
                each
                for each in late
                if set(each.names) != set(arrival.names)
                or each.excess > arrival.excess / _NEARLY_ALL
            ]
    suspicions = [
        suspicion
        for suspicion in (*suspicions, *late, *later)
        if not any(_may_wait_outside(run, suspicion, other) for other in (None, *late, *later))
        and not _lacks_peers(suspicion, of_places)
    ]
    nodes = sorted({rank[0].node for rank in ranks})
    if len(nodes) > 1 and len(nodes) < len(ranks):
        by_node = [
            [position for position, rank in enumerate(ranks) if rank[0].node == node]
            for node in nodes
        ]
        means = np.stack([total[:, positions].mean(axis=1) for positions in by_node], axis=1)
        processes = [
            sum((numbers[position] for position in positions), ()) for positions in by_node
        ]
        of_nodes = _tested(means, "node", group, nodes, processes, ALL, least, widest)
        if of_nodes is not None and 2 * len(of_nodes.processes) == sum(map(len, numbers)):
            slow = dict.fromkeys(run.processes[number].name for number in of_nodes.processes)
            of_nodes.kind, of_nodes.names = "imbalance", tuple(slow)
        suspicions.append(of_nodes)
    return [straggler for straggler in suspicions if straggler is not None]


def _awaited(run: Run, suspicion: Straggler, usual: Sequence[int]) -> bool:
    """Whether all others wait for suspected ranks, which then wait for none of them."""
    longer = (suspicion.own - suspicion.others).clip(0)
    rows = np.flatnonzero(_within(suspicion.parts or [(0, len(usual) - 1)], len(usual)))
    return are_awaited(run, suspicion.processes, np.array(usual)[rows], longer[rows])


def are_awaited(run: Run, numbers: Sequence[int], steps: NDArray[np.int64], longer: Floats) -> bool:
    """Whether all other ranks wait in collectives for as long as some take longer than usually.

    Then these wait for none of them meanwhile. It is unknown, and so not the case, if anybody else
    may wait, too, as where a driver calls the ranks.

    Args:
        steps: positions of the steps in which they take longer.
        longer: by how many nanoseconds.
    """
    if run.driver is not None or len(run.groups) != 1:
        return False
    (members_,) = run.groups.values()
    others = [process.number for process in members_ if process.number not in numbers]
    if not others or not len(steps):
        return False
    inside = run.meeting[steps]
    waits = inside[:, others].min(axis=1) - inside[:, list(numbers)].max(axis=1)
    return bool(np.median(waits) >= _NEARLY_ALL * np.median(longer) > 0)


def _lacks_peers(suspicion: Straggler | None, parts: Sequence[frozenset[int]]) -> bool:
    """Whether the suspected ranks are all that have their part in the job."""
    return suspicion is not None and any(part <= set(suspicion.processes) for part in parts)


def _may_wait_outside(run: Run, suspicion: Straggler | None, late: Straggler | None) -> bool:
    """Whether a suspicion about time outside scopes tells nothing new.

    The ranks may wait there, and either they are too many to be slow, or they only start late.
    """
    if suspicion is None or suspicion.place != OUTSIDE or works_outside(run, suspicion.processes):
        return False
    is_late = late is not None and set(suspicion.names) <= set(late.names)
    return suspicion.kind == "imbalance" or (
        is_late and late is not None and late.excess >= _NEARLY_ALL * suspicion.excess
    )


def works_outside(run: Run, processes: Iterable[int]) -> bool:
    """Whether all of some processes are known to work where they are in no scope."""
    return run.running.issuperset(processes)


def _only_calls_more(
    run: Run, slow: Straggler | None, ranks: Sequence[Sequence[Process]], places: Sequence[int]
) -> bool:
    """Whether ranks take longer at some places only because they make more calls, each as fast.

    This happens where ranks run freely and another rank is slow.
    """
    if slow is None or slow.kind != "rank":
        return False
    processes = list(chain.from_iterable(ranks))
    mine = np.array([rank[0].number in slow.processes for rank in ranks])
    excess, with_usual_calls = np.zeros(mine.sum()), np.zeros(mine.sum())
    for place in places:
        calls = of_ranks(run.matrix("calls", place, processes), ranks)[run.usual].sum(axis=0)
        times = own_time(run, place, ranks)[run.usual].sum(axis=0)
        usual_calls, usual_time = np.median(calls[~mine]), np.median(times[~mine])
        excess += times[mine] - usual_time
        with_usual_calls += times[mine] / calls[mine].clip(1) * usual_calls - usual_time
    return bool((with_usual_calls <= _BY_TIME * excess).all())


def _rows_to_compare(times: Floats) -> NDArray[np.int64]:
    """The steps to compare ranks in: all, or those with any time if most steps have none."""
    present = (times > 0).any(axis=1)
    if LEAST_STEPS <= present.sum() <= len(times) / 2:
        return np.flatnonzero(present)
    return np.arange(len(times))


def _doing(times: Floats) -> NDArray[np.int64]:
    """The ranks that do something at a place in most steps.

    Work that only some ranks do, such as the first one, is their part in the job, not slowness.
    """
    return np.flatnonzero((times > 0).mean(axis=0) > 0.5)


def shared_work(run: Run, group: str, differs: float = 0.0) -> Floats:
    """Nanoseconds of work in the places that all ranks of a group have, by step and rank.

    Args:
        differs: by how much ranks must differ at a place, relative to their median, for it to
            count.
    """
    ranks = list(members(run, group).values())
    total = np.zeros((len(run.steps), len(ranks)))
    for place in common_places(run, group):
        if place == OUTSIDE and not works_outside(run, (p.number for p in run.groups[group])):
            continue  # some ranks may wait there
        times = pace(run, place, ranks)
        usual_times = np.median(times[run.usual], axis=0)
        if np.ptp(usual_times) < differs * np.median(usual_times):
            continue
        if len(_doing(times[run.usual])) == len(ranks):
            total += times
    return total


def _places_of(run: Run, group: str) -> list[int]:
    """The places in which the workers of a group have been."""
    numbers = [process.number for process in run.groups[group]]
    places: list[int] = np.unique(run.sums["place"][np.isin(run.sums["process"], numbers)]).tolist()
    return [*places, *outside(run, group)]


def common_places(run: Run, group: str) -> list[int]:
    """The places that the workers of a group entered in enough steps to be compared there."""
    numbers = [process.number for process in run.groups[group]]
    counts = np.bincount(run.sums["place"][np.isin(run.sums["process"], numbers)])
    least = min(len(run.usual) / 2, LEAST_STEPS * len(numbers))
    places: list[int] = np.flatnonzero(counts > least).tolist()
    return [*places, *outside(run, group)]


def outside(run: Run, group: str) -> list[int]:
    """`OUTSIDE`, if all ranks of a group mark steps: nobody calls them meanwhile."""
    numbers = {process.number for process in run.groups[group]}
    return [OUTSIDE] if numbers <= run.edges.keys() else []


def _delays(run: Run, ranks: Sequence[Sequence[Process]], call_times: _Called) -> Floats:
    """Nanoseconds from a step's beginning to the first scope of each rank in it.

    If ranks mark their own steps, each delay begins with the rank's own step: nobody calls such
    ranks late. If another worker calls a rank, the delay begins with the call, because the time
    before it is the caller's. If the call takes results of other calls, the delay begins when these
    have ended.
    """
    delays = np.zeros((len(run.steps), len(ranks)))
    for column, rank in enumerate(ranks):
        for process in rank:
            begins, ends = run.step_edges(process)
            starts = np.sort(rows_of(process)[1])
            if len(starts):
                at = np.searchsorted(starts, begins)
                first = starts[np.minimum(at, len(starts) - 1)]
                inside = (at < len(starts)) & (first < ends)
                since = np.maximum(begins, call_times.before(process, first))
                delays[:, column] += np.where(inside, first - since, 0)
    return delays


def usual_delays(run: Run, groups: Iterable[str]) -> dict[str, float]:
    """Nanoseconds in a step from a call to the first scope of most of each group's ranks."""
    call_times, usual = _Called(run), {}
    for group in groups:
        ranks = list(members(run, group).values())
        if ranks and run.usual:
            delays = np.median(_delays(run, ranks, call_times)[run.usual], axis=0)
            usual[group] = float(np.quantile(delays, 0.25, method="lower"))
    return usual


def _arrivals(
    run: Run, group: str, ranks: Sequence[Sequence[Process]]
) -> Iterator[tuple[int, Floats, Floats]]:
    """Nanoseconds that each rank is in no scope before it meets the others, and with them.

    By step and rank, for each place in which all ranks of a group meet in most steps: before one of
    them this rank may be late, and before another one that. The nanoseconds with the others are 0
    where not all workers of the run meet at once. Leaves out places to which ranks come from
    different ones, as the last stage of a pipeline does: that tells nothing about who is late.
    """
    numbers = [process.number for process in chain.from_iterable(ranks)]
    if not outside(run, group) or works_outside(run, numbers):
        return
    delays: dict[int, Floats] = {}
    insides: dict[int, Floats] = {}
    befores: dict[int, set[int]] = {}
    keys: dict[int, list[Integers]] = {}
    for column, rank in enumerate(ranks):
        for process in rank:
            place, start, end = _top_level(run, process)
            begins, ends = run.step_edges(process)
            marked = np.flatnonzero(ends)
            nth = np.searchsorted(begins[marked], start, "right") - 1
            at = marked[nth]
            inside = (nth >= 0) & (start < ends[at])
            since = np.maximum(np.append(begins[marked[:1]], end[:-1]), begins[at])
            previous = np.append(-1, place[:-1])
            for number in np.unique(place[inside]).tolist():
                place_of = run.places[number]
                if place_of.waits_for == BARRIER and place_of.name not in MESSAGES:
                    mine = inside & (place == number)
                    shape = len(run.steps), len(ranks)
                    by_step = delays.setdefault(number, np.full(shape, -1.0))
                    by_step[at[mine], column] = by_step[at[mine], column].clip(0)
                    np.add.at(by_step[:, column], at[mine], (start - since)[mine].clip(0))
                    usually = np.unique(previous[mine], return_counts=True)
                    befores.setdefault(number, set()).add(int(usually[0][usually[1].argmax()]))
                    within = insides.setdefault(number, np.zeros(shape))
                    np.add.at(within[:, column], at[mine], (end - start)[mine])
                    links = process.ledger.links
                    here = process.places[links["place"]] == number
                    keys.setdefault(number, []).append(np.unique(links["key"][here]))
    alone = run.driver is None and len(run.groups) == 1
    for number, by_step in delays.items():
        in_most = ((by_step[run.usual] >= 0).mean(axis=0) >= roles.STEADY).all()
        if in_most and len(befores[number]) == 1:
            shared = np.unique(np.concatenate(keys[number]), return_counts=True)[1]
            of_all = alone and len(shared) > 0 and np.median(shared) == len(ranks)
            yield number, by_step.clip(0), insides[number] * of_all


def _top_level(run: Run, process: Process) -> tuple[Integers, Integers, Integers]:
    """Place, start and end of the scopes inside no other, in order, of the thread with the most."""
    ledger = process.ledger
    spans = ledger.spans[
        np.isin(
            ledger.spans["place"],
            [number for number, place in enumerate(ledger.places) if place.depth == 1],
        )
    ]
    if len(spans):
        spans = spans[spans["track"] == np.bincount(spans["track"]).argmax()]
    spans = spans[np.argsort(spans["start"], kind="stable")]
    return (
        process.places[spans["place"]], spans["start"] + ledger.offset, spans["end"] + ledger.offset
    )  # fmt: skip


def _begin_alike(run: Run, ranks: Sequence[Sequence[Process]], late: Straggler) -> bool:
    """Whether late ranks begin their steps at the same place as most of the others.

    Of stages that wait for each other, the first one begins with its work, later than others begin
    to wait for it.
    """
    firsts: dict[int, list[int]] = {}
    for rank in ranks:
        first = first_place(run, rank[0])
        if first is not None:
            firsts.setdefault(first, []).append(rank[0].number)
    usual = max(firsts.values(), key=len, default=[])
    mine = set(late.processes)
    others = [number for numbers in firsts.values() for number in numbers if number not in mine]
    alike = [number for number in usual if number not in mine]
    return bool(mine & set(usual)) and 2 * len(alike) >= len(others)


def first_place(run: Run, process: Process) -> int | None:
    """The place in which a process begins most of its steps; ``None`` if it is in no scope."""
    place, start = rows_of(process)[:2]
    begins, ends = run.step_edges(process)
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], begins)
    inside = at < len(order)
    inside[inside] &= start[order[at[inside]]] < ends[inside]
    return int(np.bincount(place[order[at[inside]]]).argmax()) if inside.any() else None


class _Called:
    """When calls could begin: once a worker had called, and once their arguments were ready.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self._blind = run.driver is not None
        is_call = np.array([place.name in CALLS for place in run.places], bool)
        calls = [(np.zeros(0, np.uint64), np.zeros(0, np.int64))]
        releases, needs = list(calls), [(np.zeros(0, np.uint64), np.zeros(0, np.uint64))]
        for process in run.processes:
            ledger = process.ledger
            links, requests, offset = ledger.links, ledger.sent, ledger.offset
            if process.number == run.driver:
                self._blind = not (links["role"] == WAITS).any()
            else:
                waits = links[links["role"] == WAITS]
                waits = waits[is_call[process.places[waits["place"]]]]
                calls.append((waits["key"], waits["start"] + offset))
                calls.append((requests["key"], requests["end"] + offset))
            ends = links[links["role"] == RELEASES]
            releases.append((ends["key"], ends["end"] + offset))
            needs.append(
                (requests["key"][requests["needs"] > 0], requests["needs"][requests["needs"] > 0])
            )
        call_keys, since = _firsts(*_joined(calls))
        release_keys, end = _firsts(*_joined(releases), last=True)
        taking, argument_keys = _joined(needs)
        at = np.searchsorted(release_keys, argument_keys).clip(0, max(0, len(release_keys) - 1))
        matches = (
            release_keys[at] == argument_keys
            if len(release_keys)
            else np.zeros(len(argument_keys), bool)
        )
        self._keys, self._times = _firsts(
            np.concatenate([call_keys, taking[matches]]),
            np.concatenate([since, end[at[matches]]]),
            last=True,
        )

    def before(self, process: Process, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """When the calls that begin at these times could have begun; the earliest time if unknown.

        If the driver's calls are unknown, too, nothing shows whether such a call is late: then it
        could not have begun earlier.
        """
        never = starts if self._blind else np.full(len(starts), np.iinfo(np.int64).min)
        links = process.ledger.links
        links = np.sort(links[links["role"] == RELEASES], order="start")
        if not len(links) or not len(self._keys):
            return never
        begins = links["start"] + process.ledger.offset
        at = np.minimum(np.searchsorted(begins, starts), len(begins) - 1)
        keys = links["key"][at]
        positions = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        ours = (begins[at] == starts) & (self._keys[positions] == keys)
        return np.where(ours, self._times[positions], never)


def _joined(
    parts: Sequence[tuple[NDArray[Any], NDArray[Any]]],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pairs of columns as one pair."""
    first, second = zip(*parts, strict=True)
    return np.concatenate(first), np.concatenate(second)


def _firsts(
    keys: NDArray[np.uint64], times: NDArray[np.int64], last: bool = False
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Each key once, in order, with its first time, or its last time if `last`."""
    order = np.argsort(-times if last else times, kind="stable")
    unique_keys, at = np.unique(keys[order], return_index=True)
    return unique_keys, times[order][at]


def _tested(
    times: Floats,
    kind: Kind,
    group: str,
    names: Sequence[str],
    processes: Sequence[tuple[int, ...]],
    place: int,
    least: float,
    width: int = 1,
) -> Straggler | None:
    """The smallest set of columns that costs nearly as much as any set, as a hypothesis.

    Args:
        times: of which as many rows as `width` are one observation.
        least: nanoseconds that matter.
    """
    count = times.shape[1]
    usual_times = np.median(times, axis=0) if kind == "late start" else times.mean(axis=0)
    order = np.argsort(-usual_times, kind="stable")
    falling = usual_times[order]
    sets = []
    for size in range(1, max(1, min(count // 2, _MOST_RANKS if kind == "rank" else 1)) + 1):
        # ranks that differ by as much among themselves as from the next one are no set, and do
        # not stand out from others that differ by as much; if ranks are called in turn, or call
        # each other in turn, all of them begin apart
        usual_time = falling[-1] if kind == "late start" else np.median(falling[size:])
        spread = max(falling[0] - falling[size - 1], falling[size] - usual_time)
        if falling[size - 1] - falling[size] <= spread:
            continue
        if width > 1 and not _stands_out(falling, size):
            continue
        columns, rest = order[:size], order[size:]
        own, most = times[:, columns].max(axis=1), times[:, rest].max(axis=1)
        sets.append(
            Straggler(
                kind, group, tuple(names[column] for column in columns),
                tuple(number for column in columns for number in processes[column]), place,
                int((own > most).sum()), int((own != most).sum()), 1.0, own,
                np.median(times[:, rest], axis=1), most,
            )
        )  # fmt: skip
    if not sets:
        return None
    gains = [candidate.gain for candidate in sets]
    chosen = sets[next(at for at, gain in enumerate(gains) if gain >= _NEARLY_ALL * max(gains))]
    size = len(chosen.names)
    # correlate who is the slowest, not by how much: all ranks may get slower together
    leads = (chosen.own > chosen.most)[::width].astype(float)
    share = odds.independent_share(leads) / width
    chance = odds.tail(chosen.slowest * share, chosen.steps * share, size / count)
    of_each = np.median(times, axis=0)
    usually = of_each[order[:size]].min() - np.median(of_each[order[size:]])
    if count > 2 and usually >= least:  # else few steps cost much, and what is certain costs little
        chance = 2 * min(chance, _chance_of_ranks(times[::width], order[:size]))
    # what is certain from few steps, as where calls are rare: no time of the others is as long
    chance = min(chance, 2 * odds.apart(chosen.own[::width], chosen.most[::width]))
    chosen.probability = odds.of_any(chance, count, size)
    return chosen


def _chance_of_ranks(times: Floats, columns: NDArray[np.int64]) -> float:
    """The probability that columns rank so high in the rows by chance."""
    # of equal times, the first rank lowest one way round, and the last one the other way
    ways = (_ranks(times) + _ranks(times[:, ::-1])[:, ::-1]) / 2
    means = ways[:, columns].mean(axis=1)
    trials = odds.independent_share(means) * len(times)
    return odds.of_ranks(float(means.mean()), times.shape[1], len(columns), trials)


def _ranks(times: Floats) -> NDArray[np.int64]:
    """The rank of each column in each row, from 0 for the least."""
    return times.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")


def _stands_out(falling: Floats, size: int) -> bool:
    """Whether the first of some times are far from the rest, by how much these differ.

    Ranks that do not make the same calls may have very different ones, such as clients with more
    data, which no ledger tells.
    """
    logs = np.log(falling[falling > 0])
    rest = logs[size:]
    if len(rest) < 2:
        return True
    median = float(np.median(rest))
    spread = 1.4826 * float(np.median(np.abs(rest - median)))
    if len(rest) < _FEW_RANKS:
        spread = float(rest.std(ddof=1))
    return bool(logs[size - 1] - median >= _FAR * spread)


def _late(
    delays: Floats,
    group: str,
    names: Sequence[str],
    processes: Sequence[tuple[int, ...]],
    least: float,
) -> list[Straggler]:
    """The ranks that begin late in most steps, or each that does for a while, as hypotheses."""
    late = _tested(delays, "late start", group, names, processes, BEFORE, least)
    if late is not None and late.probability < CERTAIN and late.gain >= least:
        return [late]
    passing = _for_a_while(delays, "late start", group, names, processes, BEFORE)
    return passing or ([] if late is None else [late])


def _by_role(
    times: Floats,
    group: str,
    names: Sequence[str],
    processes: Sequence[tuple[int, ...]],
    place: int,
    parts: Sequence[frozenset[int]],
    width: int,
    least: float,
    share_calls: Callable[[NDArray[np.bool_]], bool],
) -> Straggler | None:
    """The ranks that are slow; or, if times cannot tell, those that are slow or have more to do.

    Args:
        parts: the sets of processes that have one part by the record.
        least: nanoseconds by which the times of two parts differ.
        share_calls: whether the chosen columns and the others take calls from each other.
    """
    suspicion = _tested(times, "rank", group, names, processes, place, least, width)
    slow: set[int] = set()
    if suspicion is not None and suspicion.probability < CERTAIN:  # else a pause may stand out
        slow = set(suspicion.processes)
    count = times.shape[1]
    usual_times = np.median(times, axis=0)  # a pause says nothing about a rank's part
    order = np.argsort(-usual_times, kind="stable")
    all_numbers = set(chain.from_iterable(processes))
    halves = {count // 2, count - count // 2}
    if count < (_LEAST_ODD if count % 2 else _LEAST_RANKS):
        halves = set()
    # a half that the record does not tell of is one only where the times have their largest gap
    gaps = -np.diff(usual_times[order])
    halves = {size for size in halves if 2 * gaps[size - 1] >= gaps.max()}
    of_parts = {part & all_numbers for part in parts}
    for size in sorted({*halves, *map(len, of_parts)} - {0, count}):
        columns, rest = order[:size], order[size:]
        numbers = tuple(number for column in columns for number in processes[column])
        is_part = frozenset(numbers) in of_parts
        if not slow <= set(numbers) or (size not in halves and not is_part):
            continue
        if not _are_two_kinds(usual_times[columns], usual_times[rest], least):
            continue
        if not is_part and share_calls(np.isin(np.arange(count), columns)):
            continue  # whoever is free does any of the work, so all have the same part
        own, others = np.median(times[:, columns], axis=1), np.median(times[:, rest], axis=1)
        chance = _chance_of_ranks(times[::width], columns)
        chance = chance * len(of_parts) if is_part else odds.of_any(chance, count, size)
        return Straggler(
            "imbalance", group, tuple(names[column] for column in columns), numbers, place,
            int((own > others).sum()), len(times), min(1.0, chance), own, others, others,
        )  # fmt: skip
    return suspicion


def _are_two_kinds(longer: Floats, shorter: Floats, least: float) -> bool:
    """Whether times are of two kinds, and not only a long and a short part of times of one kind."""
    freedom = max(1, len(longer) + len(shorter) - 2)
    spread = math.sqrt((len(longer) * longer.var() + len(shorter) * shorter.var()) / freedom)
    return bool(longer.mean() - shorter.mean() > max(least, _TWO_KINDS * spread))


def _changing(
    times: Floats,
    group: str,
    names: Sequence[str],
    processes: Sequence[tuple[int, ...]],
    place: int,
    width: int,
) -> list[Straggler]:
    """The rank that gets slower, and those that are slow for a while, as hypotheses."""
    passing = _for_a_while(times, "drift", group, names, processes, place) if width == 1 else []
    drift = _drifting(times, group, names, processes, place, width)
    if drift is not None and drift.names not in [each.names for each in passing]:
        passing.append(drift)
    return passing


def _drifting(
    times: Floats,
    group: str,
    names: Sequence[str],
    processes: Sequence[tuple[int, ...]],
    place: int,
    width: int,
) -> Straggler | None:
    """The rank that gets slower than the others as steps go by, as a hypothesis."""
    rows = times[::width]
    steps, count = rows.shape
    if steps < _LEAST_ROWS:
        return None
    quarter = max(1, steps // 4)
    column = int((rows[-quarter:].mean(axis=0) - rows[:quarter].mean(axis=0)).argmax())
    ratio = (rows / of_others(rows).clip(1))[:, [column]]
    quarters = slice(quarter), slice(-quarter, None)
    first, last = (float(np.median(ratio[part])) for part in quarters)
    correlation = float(_correlations(ratio)[0])
    if last < _DRIFT * first or correlation < (_RISING if count > 2 else _RISING_OF_TWO):
        return None
    # chance alone makes these 1 on average, if steps do not resemble those before them
    of_peers = np.zeros(1)
    if count > 2:  # beside each other: beside the one that gets slower, they get faster
        peers = np.delete(rows, column, axis=1)
        of_peers = _trends(_correlations(peers / of_others(peers).clip(1)), steps)
    usual_trend = max(1.0, math.sqrt(float((of_peers**2).mean())))
    trend = float(_trends(np.array(correlation), steps))
    chance = count * math.erfc(trend / usual_trend / math.sqrt(2)) / 2
    own, rest = times[:, column], np.delete(times, column, axis=1)
    most = rest.max(axis=1)
    return Straggler(
        "drift", group, (names[column],), processes[column], place, int((own > most).sum()),
        len(times), min(1.0, chance), own, np.median(rest, axis=1), most,
    )  # fmt: skip


def _for_a_while(
    times: Floats,
    kind: Kind,
    group: str,
    names: Sequence[str],
    processes: Sequence[tuple[int, ...]],
    place: int,
) -> list[Straggler]:
    """Ranks that are slow in one part of the run, or in several, as hypotheses.

    The excess of such a rank over the others has two levels, which explain it better than a line
    does. At least half of the ranks have no part in which they differ half as much from the rest of
    their steps.
    """
    steps, count = times.shape
    if count < 2 or steps < 2 * LEAST_STEPS:
        return []
    others = of_others(times)
    # all ranks may get slower, and what a slow one takes longer with them
    ratios = kind == "drift"
    excess = np.log(times.clip(1) / others.clip(1)) if ratios else times - others
    absolute = np.log(times.clip(1)) if ratios else times
    shifts = np.zeros(count)
    for column, part in enumerate(_highest_parts(excess)):
        is_within = _within([part], steps)
        if LEAST_STEPS <= is_within.sum() <= _PART_OF_RUN * steps:
            shifts[column] = _shift(excess[:, column], is_within)
            if count < _PEERS:  # another one may have been faster meanwhile
                shifts[column] = min(shifts[column], _shift(absolute[:, column], is_within))
    usual = float(np.sort(shifts)[(count - 1) // 2])
    least = max(2 * usual, math.log(_DRIFT) if ratios else 0.0)
    found = []
    second, first = np.partition(times, -2, axis=1)[:, -2:].T
    for column in np.flatnonzero(shifts > least).tolist():
        parts = _high_parts(excess[:, column])
        chance = count * _chance_of_parts(excess[:, column], parts, shifts[column])
        if chance >= 1:
            continue
        own = times[:, column]
        most = np.where(times.argmax(axis=1) == column, second, first)
        found.append(
            Straggler(
                kind, group, (names[column],), processes[column], place, int((own > most).sum()),
                steps, min(1.0, chance), own, others[:, column], most, parts=parts,
            )
        )  # fmt: skip
    return found


def _chance_of_parts(values: Floats, parts: Sequence[tuple[int, int]], shift: float) -> float:
    """The probability that some values are higher in parts of them by chance, by Bonferroni.

    It is 1 if they are not apart, or nearer to a line than to two levels.
    """
    is_within, at = _within(parts, len(values)), np.arange(len(values))
    if not 0 < is_within.mean() <= _PART_OF_RUN:
        return 1.0
    usually = np.median(values[~is_within])
    is_high = values > usually + shift / 2
    left = values - np.where(is_within, np.median(values[is_within]), usually)
    from_line = values - np.polyval(np.polyfit(at, values, 1), at)
    apart = min(is_high[is_within].mean(), 1 - is_high[~is_within].mean())
    if apart < _APART or left @ left > from_line @ from_line:
        return 1.0
    share = odds.independent_share(left)
    within, without = (math.ceil(rows.sum() * share) for rows in (is_within, ~is_within))
    # of integers, as a long run has more ways than fit into a float
    ways: int = len(values) ** (2 * len(parts))
    return ways / math.comb(within + without, within)


def _highest_parts(levels: Floats) -> list[tuple[int, int]]:
    """The first and the last row of the part in which each column is high, if it has two levels.

    It is the part with the largest sum above the middle of both.
    """
    low, high = np.quantile(levels, (0.1, 0.9), axis=0)
    return _largest_sums(levels - (low + high) / 2)


def higher_since(values: Floats) -> int | None:
    """The row from which values are higher than before, to the last one; ``None`` if they are not.

    That is, by two levels, and not by chance.
    """
    parts = _high_parts(values)
    if len(parts) != 1 or parts[0][1] < len(values) - 1 or parts[0][0] < LEAST_STEPS:
        return None
    shift = _shift(values, _within(parts, len(values)))
    return parts[0][0] if _chance_of_parts(values, parts, shift) < CERTAIN else None


def _high_parts(values: Floats) -> tuple[tuple[int, int], ...]:
    """The first and the last row of each long part in which values are high, in order."""
    low, high = np.quantile(values, (0.1, 0.9))
    above = (values - (low + high) / 2)[:, None]
    parts: list[tuple[int, int]] = []
    while len(parts) < _MOST_PARTS:
        ((first, last),) = _largest_sums(above)
        if last - first + 1 < LEAST_STEPS:
            break
        parts.append((first, last))
        above[first : last + 1] = -np.abs(above).max()
    return tuple(sorted(parts))


def _largest_sums(values: Floats) -> list[tuple[int, int]]:
    """The first and the last row of the part with the largest sum, of each column."""
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:])
    ends = (sums - np.minimum.accumulate(sums, axis=0)).argmax(axis=0).tolist()
    return [(int(sums[: end + 1, column].argmin()), end - 1) for column, end in enumerate(ends)]


def _shift(values: Floats, is_within: NDArray[np.bool_]) -> float:
    """By how much the values in a part are higher than the others."""
    return float(np.median(values[is_within]) - np.median(values[~is_within]))


def _within(parts: Sequence[tuple[int, int]], count: int) -> NDArray[np.bool_]:
    """Which of so many rows are in parts of them."""
    is_within = np.zeros(count, bool)
    for first, last in parts:
        is_within[first : last + 1] = True
    return is_within


def _correlations(ratios: Floats) -> Floats:
    """Spearman's correlation of each column with the number of the step."""
    steps = len(ratios)
    ranks = np.argsort(np.argsort(ratios, axis=0, kind="stable"), axis=0, kind="stable")
    at = np.arange(steps) - (steps - 1) / 2
    correlations: Floats = at @ (ranks - (steps - 1) / 2) / (at @ at)
    return correlations


def _trends(correlations: Floats, steps: int) -> Floats:
    """The correlations in standard deviations, by Fisher's transformation."""
    trends: Floats = np.arctanh(correlations.clip(-_ALMOST, _ALMOST)) * math.sqrt(max(1, steps - 3))
    return trends


def _settled(run: Run, candidates: Sequence[Straggler], usual: Sequence[int]) -> list[Straggler]:
    """One straggler for each rank, set of ranks or node, at the place where it loses most."""
    parts = [set(candidate.processes) for candidate in candidates if candidate.kind == "imbalance"]
    by_nodes = [
        candidate
        for candidate in candidates
        if candidate.kind == "node"
        and not any(part.issuperset(candidate.processes) for part in parts)
    ]
    suspicions = _reported([candidate for candidate in candidates if candidate.kind != "node"])
    slow_nodes = _slow_nodes(run, usual, candidates)
    results: dict[tuple[str, tuple[str, ...]], Straggler] = {}
    for suspicion in suspicions:
        straggler = located(run, suspicion, usual)
        nodes = {run.processes[number].node for number in suspicion.processes}
        node = nodes.pop()
        is_late = suspicion.kind == "late start"  # which says nothing about how fast its node is
        tells = (
            not is_late and node in slow_nodes and _tells(run, suspicion, parts, slow_nodes[node])
        )
        if not nodes and tells:
            previous = results.get(("node", (node,)))
            if previous is None or previous.excess < straggler.excess:
                results["node", (node,)] = attrs.evolve(
                    straggler, kind="node", names=(node,), processes=slow_nodes[node]
                )
            continue
        alone = len({p.node for p in run.processes}) > 1 and not _has_company(run, suspicion)
        results[suspicion.kind, suspicion.names] = attrs.evolve(straggler, alone=alone)
    for suspicion in by_nodes:
        (node,) = suspicion.names
        if node in slow_nodes and ("node", (node,)) not in results:
            straggler = located(run, suspicion, usual)
            results["node", (node,)] = attrs.evolve(straggler, processes=slow_nodes[node])
    return sorted(results.values(), key=lambda result: -result.excess)


def _tells(
    run: Run, suspicion: Straggler, parts: Sequence[set[int]], numbers: Sequence[int]
) -> bool:
    """Whether a suspicion shows that the node with these processes is slow.

    Ranks that may have another part in the job show it only if another group is slow there, too,
    or if all of them are slow at one place.
    """
    if len({run.processes[number].group for number in numbers}) > 1:
        return True
    if suspicion.kind == "imbalance":
        return False
    may_have_another_part = any(part.issuperset(numbers) for part in parts)
    return not may_have_another_part or set(numbers) <= set(suspicion.processes)


def _reported(candidates: Iterable[Straggler]) -> list[Straggler]:
    """The suspicions to report for each worker.

    A worker may be both slow and late. Its delay is reported, too, if that costs more, as it has
    another remedy. A smaller delay may be a consequence of the slowness. And it may be slow in one
    scope, and have more to do in another.
    """
    waiting = sorted(candidates, key=lambda candidate: (candidate.place == ALL, -candidate.gain))
    late = [candidate for candidate in waiting if candidate.kind == "late start"]
    slow = [candidate for candidate in waiting if candidate.kind != "late start"]
    suspicions: list[Straggler] = []
    while slow:
        of_worker = [candidate for candidate in slow if _are_alike(slow[0], candidate)]
        slow = [candidate for candidate in slow if candidate not in of_worker]
        suspicions.append(_best(of_worker))
    for suspicion in late:
        same = [
            other.excess for other in suspicions if set(suspicion.names).intersection(other.names)
        ]
        if suspicion.excess > max(same, default=0.0):
            suspicions.append(suspicion)
    return suspicions


def _are_alike(one: Straggler, other: Straggler) -> bool:
    """Whether two suspicions are about the same slowness of some worker."""
    kinds, places = {one.kind, other.kind}, {one.place, other.place}
    apart = "imbalance" in kinds and len(kinds) > 1 and len(places) > 1 and ALL not in places
    shared = len(set(one.names).intersection(other.names))
    return not apart and 2 * shared > min(len(one.names), len(other.names))


def _best(candidates: Sequence[Straggler]) -> Straggler:
    """The most informative of a worker's suspicions."""
    whole = max(candidate.excess for candidate in candidates)
    by_gain = sorted(candidates, key=lambda candidate: -candidate.gain)
    for candidate in by_gain:
        # a drift says more than slowness
        if candidate.kind == "drift" and candidate.excess >= 0.5 * whole:
            return candidate
    # one scope says more than all scopes together
    scopes = [
        candidate
        for candidate in by_gain
        if candidate.place != ALL and candidate.gain >= 0.5 * by_gain[0].gain
    ]
    return (scopes or by_gain)[0]


def located(run: Run, suspicion: Straggler, usual: Sequence[int]) -> Straggler:
    """The suspicion at a single place, if one place has most of the excess.

    Args:
        usual: the positions of the steps that show it.
    """
    if suspicion.place != ALL:
        return suspicion
    return attrs.evolve(suspicion, place=_worst_place(run, suspicion, usual))


def _worst_place(run: Run, suspicion: Straggler, usual: Sequence[int]) -> int:
    """The place with at least half of a rank's excess; `ALL` if there is none."""
    workers = members(run, suspicion.group)
    if suspicion.kind == "node":
        mine = [rank for rank in workers.values() if rank[0].node in suspicion.names]
        peers = [rank for rank in workers.values() if rank[0].node not in suspicion.names]
    else:
        mine = [workers[name] for name in suspicion.names]
        peers = [rank for name, rank in workers.items() if name not in suspicion.names]
    excess = {}
    for place in _places_of(run, suspicion.group):
        times = pace(run, place, [*mine, *peers])[usual].mean(axis=0)
        excess[place] = float(times[: len(mine)].mean() - times[len(mine) :].mean())
    if not excess:
        return ALL
    worst = max(excess, key=excess.__getitem__)
    return worst if excess[worst] >= 0.5 * sum(max(0.0, loss) for loss in excess.values()) else ALL


def _work_ratios(run: Run, node: str, usual: Sequence[int]) -> dict[tuple[str, str], float]:
    """Each worker's work on a node, divided by the median of its group's workers on other nodes."""
    ratios = {}
    for group in run.groups:
        workers = members(run, group)
        peers = [rank for rank in workers.values() if rank[0].node != node]
        mine = {name: rank for name, rank in workers.items() if rank[0].node == node}
        if not peers or not mine:
            continue
        work = shared_work(run, group, _DIFFERS)[usual].mean(axis=0)
        if not work.any():  # then its ranks are as fast on all nodes
            work = shared_work(run, group)[usual].mean(axis=0)
        mean = dict(zip(workers, work, strict=True))
        median = float(np.median([mean[name] for name in workers if name not in mine]))
        for name in mine:
            if median > 0:
                ratios[group, name] = float(mean[name]) / median
    return ratios


def _slow_nodes(
    run: Run, usual: Sequence[int], candidates: Sequence[Straggler]
) -> dict[str, tuple[int, ...]]:
    """The nodes on which every worker is slower than its peers elsewhere, with their processes.

    All of them are as much slower, or several groups as a whole, each for itself.
    """
    nodes = {process.node for process in run.processes}
    if len(nodes) < 2:
        return {}
    names = set(chain.from_iterable(candidate.names for candidate in candidates))
    slow = {}
    for node in sorted(nodes):
        processes = [p for members_ in run.groups.values() for p in members_ if p.node == node]
        if not names & {node, *(process.name for process in processes)}:
            continue
        ratios = _work_ratios(run, node, usual)
        if len(ratios) < 2:
            continue
        excess = np.array(list(ratios.values())) - 1
        groups = {c.group for c in candidates if c.kind == "node" and c.names == (node,)}
        alike = excess.min() >= _ALIKE * excess.mean()
        if excess.min() > 0 and (alike or len(groups) > 1):
            slow[node] = tuple(process.number for process in processes)
    return slow


def _has_company(run: Run, suspicion: Straggler) -> bool:
    """Whether another worker on a straggler's node has peers elsewhere to be compared with."""
    node = run.processes[suspicion.processes[0]].node
    for workers in run.groups.values():
        nodes = {process.node for process in workers}
        for process in workers:
            if process.node == node and process.name not in suspicion.names and len(nodes) > 1:
                return True
    return False


def imbalanced(run: Run, group: str, place: int) -> bool:
    """Whether in most steps one rank is much slower at a place, and a different one each time.

    In each step, some rank is the slowest by chance. So take the longest times of the run, as many
    as there are steps. By chance, some steps have several of these times and others have none. If
    ranks are slow by turns, nearly every step has one.

    Or the slowest rank leads the next one by much the same in each step. By chance, its mean lead
    in logs is about one standard deviation, of two ranks 1.3, and with few steps it may be more:
    a few of a thousand simulated runs, with normal noise, exceed the bound here.
    """
    ranks = list(members(run, group).values())
    times = own_time(run, place, ranks)[run.usual]
    doing = _doing(times)
    times = times[:, doing]
    steps, count = times.shape
    present = times > 0
    if steps < LEAST_STEPS or present.sum(axis=1).min() < 2:
        return False
    if not present.all():  # a rank may stay away, but those that run freely are slow by chance
        calls = of_ranks(run.matrix("calls", place, list(chain.from_iterable(ranks))), ranks)
        if not _are_steady(np.where(present, calls[run.usual][:, doing], 1)):
            return False
    slowest = times.argmax(axis=1)
    most = int(np.bincount(slowest).max())
    if 2 * most > _BY_TURNS * steps or count * odds.tail(most, steps, 1 / count) < _NO_TURNS:
        return False
    logs = np.log(np.where(present, times, np.nan))
    first, second = np.sort(np.nan_to_num(logs, nan=-np.inf), axis=1)[:, :-3:-1].T
    leads = first - second
    steady = 1 + 0.65 / count + 3 / math.sqrt(steps) + 7 / steps
    if leads.mean() >= max(LEAST_SHARE, steady * leads.std()):
        return True
    if count < _MANY_RANKS:
        return False
    above = logs - np.nanmedian(logs, axis=1, keepdims=True)
    above = np.nan_to_num(above - np.nanmedian(above, axis=0), nan=-np.inf)
    longest = np.argpartition(-above, steps - 1, axis=None)[:steps]
    hit = len(np.unique(longest // count))
    by_chance = steps * (1 - (1 - 1 / count) ** count)
    spread = math.sqrt(steps * (math.e - 2)) / math.e
    chance = odds.tail(float((slowest[1:] == slowest[:-1]).sum()), steps - 1, 1 / count)
    return hit >= by_chance + _SURE * spread and chance > _AGAIN

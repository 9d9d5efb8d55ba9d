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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Literal

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import arrivals, comparable, levels, odds, roles
from gpuprof._analysis.run import OUTSIDE, Floats, Process, Run, of_others, of_ranks

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
_PEERS = 4
"""Number of ranks below which a rank that is fast for a while may make another one look slow."""
_RISING = 0.6
"""Spearman's correlation with the step, from which a rank may get slower."""
_RISING_OF_TWO = 0.8
"""The same of two ranks: there are no others to show how speeds wander anyway."""
_LEAST_ROWS = 4
"""Times of a rank below which nothing tells whether they grow."""
_LEAST_ODD = 5
"""Odd number of ranks from which nearly half of them count as half: one of three does not."""
_MOST_RANKS = 8
"""Ranks in a set. To tell which ranks are slow, larger sets would need more steps than there are.
"""
_NEARLY_ALL = 0.8
"""Share of what a set costs, from which a smaller set replaces it."""
_FAR = 4.0
"""Standard deviations by which ranks that do not make the same calls must differ from the others.
"""
_FEW_RANKS = 8
"""Number of ranks below which the median of their differences tells little: two may be alike."""
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
            is_within, compared = (
                levels.rows_within(self.parts, len(self.own)),
                self.own + self.others > 0,
            )
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
            shows = levels.rows_within(self.parts, len(differences))
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
    if len(usual) < odds.LEAST_STEPS:
        return []
    step = float(np.mean([run.steps[position].duration for position in usual]))
    least = comparable.LEAST_SHARE * step
    call_times = arrivals.Called(run)
    suspicions = [
        suspicion
        for group in run.groups
        for suspicion in _of_group(run, group, usual, least, call_times)
    ]
    probabilities = odds.holm([suspicion.probability for suspicion in suspicions])
    significant = [
        attrs.evolve(suspicion, probability=probability)
        for suspicion, probability in zip(suspicions, probabilities, strict=True)
        if probability < odds.CERTAIN
    ]
    candidates = [one for one in significant if _costs(one, significant) >= least]
    return _settled(run, candidates, usual)


def _costs(suspicion: Straggler, others: Iterable[Straggler]) -> float:
    """Nanoseconds per step that a suspicion costs: of a node, in all groups together.

    Where ranks do not wait for each other in each step, a slow one costs more than what it takes
    longer than the slowest of the others.
    """
    same = [suspicion]
    if suspicion.kind == "node":
        same = [each for each in others if (each.kind, each.names) == ("node", suspicion.names)]
    excess = sum(each.excess for each in same)
    return excess if suspicion.kind == "rank" else min(excess, sum(each.gain for each in same))


def _share_calls(
    run: Run,
    places: Iterable[int],
    ranks: Sequence[Sequence[Process]],
    slow: NDArray[np.bool_],
) -> bool:
    """Whether ranks share calls at any of some places."""
    return any(comparable.shared_calls(run, place, ranks, slow) is not None for place in places)


def _of_group(
    run: Run, group: str, usual: Sequence[int], least: float, call_times: arrivals.Called
) -> list[Straggler]:
    workers = comparable.members(run, group)
    names, ranks = list(workers), list(workers.values())
    if len(ranks) < 2:
        return []
    all_ranks = _Compared(
        np.zeros((len(usual), len(ranks))),
        group,
        names,
        [tuple(process.number for process in rank) for rank in ranks],
    )
    suspicions, work, width = _by_work(run, all_ranks, ranks, usual, least)
    late, later = _by_arrival(run, all_ranks, ranks, usual, least, call_times)
    of_places = roles.by_places(run, list(chain.from_iterable(ranks)))
    suspicions = [
        suspicion
        for suspicion in (*suspicions, *late, *later)
        if not any(_may_wait_outside(run, suspicion, other) for other in (None, *late, *later))
        and not _lacks_peers(suspicion, of_places)
    ]
    suspicions += _of_nodes(run, all_ranks, ranks, work, width, least)
    return suspicions


def _by_work(
    run: Run,
    all_ranks: _Compared,
    ranks: Sequence[Sequence[Process]],
    usual: Sequence[int],
    least: float,
) -> tuple[list[Straggler], Floats, int]:
    """Who may be slow, or have more to do, at a place or at all of them.

    Returns:
        That, and the work in all places, with the steps that are one observation of it.
    """
    group = all_ranks.group
    suspicions: list[Straggler] = []
    total = comparable.shared_work(run, group)[usual]
    parts = roles.parts(run, list(chain.from_iterable(ranks)))
    widest, seldom = 1, np.zeros(total.shape)
    places = comparable.common_places(run, group)
    # a rank that is slow by chance in more turns than the others is no straggler
    by_turns = {place for place in places if imbalanced(run, group, place)}
    for place in places:
        at_place = comparable.pace(run, place, ranks)[usual]
        rows = _rows_to_compare(at_place)
        doing = comparable.doing_ranks(at_place[rows])
        here = all_ranks.of(at_place[rows], doing, place)
        if len(doing) < 2 or float(here.times.mean(axis=0).max()) < least:
            continue
        active_ranks = [ranks[column] for column in doing]
        steps_a_call, _ = comparable.steps_of_a_call(run, place, ranks)
        here.width = max(1, steps_a_call)
        widest = max(widest, here.width)
        if here.width > 1 and len(comparable.doing_ranks(at_place)) == len(ranks):
            seldom += at_place
        calls = [] if steps_a_call else roles.by_calls(run, place, active_ranks)
        share_calls = functools.partial(_share_calls, run, [place], active_ranks)
        suspicion = here.slow_or_more_to_do([*parts, *calls], least, share_calls)
        if suspicion is not None and suspicion.kind == "imbalance":
            parts.append(frozenset(suspicion.processes))
        changing = here.changing()
        for hypothesis in (suspicion, *changing):
            if hypothesis is not None:
                hypothesis.spread(rows, len(usual))
                hypothesis.awaited = place == OUTSIDE and _awaited(run, hypothesis, usual)
        if (
            suspicion is not None
            and place not in by_turns
            and not _only_calls_more(run, suspicion, active_ranks, [place])
        ):
            suspicions.append(suspicion)
        suspicions += changing
    # work that is not in each step leaves fewer observations of all work than there are of the rest
    if 2 * seldom.sum() <= total.sum():
        total, widest = total - seldom, 1
    everywhere = all_ranks.of(total, width=widest)
    share_calls = functools.partial(_share_calls, run, places, ranks)
    in_all = everywhere.slow_or_more_to_do(parts, least, share_calls)
    if in_all is not None and not by_turns and not _only_calls_more(run, in_all, ranks, places):
        suspicions.append(in_all)
    return suspicions, total, widest


def _by_arrival(
    run: Run,
    all_ranks: _Compared,
    ranks: Sequence[Sequence[Process]],
    usual: Sequence[int],
    least: float,
    call_times: arrivals.Called,
) -> tuple[list[Straggler], list[Straggler]]:
    """Who may begin steps late, and who may come late to where all ranks meet."""
    late: list[Straggler] = []
    if all(rank[0].number in run.started - run.edges.keys() for rank in ranks):
        return [], []  # the steps are another process's, so they do not begin with its scopes
    # children that run Ray's tasks share a rank: whichever is free gets the next task
    if len({rank[0].rank for rank in ranks}) > 1:
        delays = arrivals.delays_of(run, ranks, call_times)[usual]
        late = [
            attrs.evolve(each, awaited=_awaited(run, each, usual))
            for each in all_ranks.of(delays, place=BEFORE).late(least)
            if arrivals.begin_alike(run, ranks, each.processes)
        ]
    later = []
    for place, delays, inside in arrivals.arrivals(run, all_ranks.group, ranks):
        for arrival in all_ranks.of(delays[usual], place=BEFORE).late(least):
            suspects = np.isin(all_ranks.names, arrival.names)
            waits = inside[usual][:, ~suspects].min(axis=1) - inside[usual][:, suspects].max(axis=1)
            leads = arrival.own - arrival.most
            if arrival.parts:
                during = levels.rows_within(arrival.parts, len(waits))
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
    return late, later


def _of_nodes(
    run: Run,
    all_ranks: _Compared,
    ranks: Sequence[Sequence[Process]],
    work: Floats,
    width: int,
    least: float,
) -> list[Straggler]:
    """The node whose ranks may be slow, if there are several, and one has several ranks."""
    nodes = sorted({rank[0].node for rank in ranks})
    if not 1 < len(nodes) < len(ranks):
        return []
    by_node = [
        [position for position, rank in enumerate(ranks) if rank[0].node == node] for node in nodes
    ]
    processes = [
        sum((all_ranks.processes[position] for position in positions), ()) for positions in by_node
    ]
    means = np.stack([work[:, positions].mean(axis=1) for positions in by_node], axis=1)
    slow = _Compared(means, all_ranks.group, nodes, processes, ALL, width).slowest("node", least)
    if slow is None:
        return []
    if 2 * len(slow.processes) == sum(map(len, processes)):
        slow.kind = "imbalance"
        slow.names = tuple(dict.fromkeys(run.processes[number].name for number in slow.processes))
    return [slow]


def _awaited(run: Run, suspicion: Straggler, usual: Sequence[int]) -> bool:
    """Whether all others wait for suspected ranks, which then wait for none of them."""
    longer = (suspicion.own - suspicion.others).clip(0)
    rows = np.flatnonzero(levels.rows_within(suspicion.parts or [(0, len(usual) - 1)], len(usual)))
    return are_awaited(run, suspicion.processes, np.array(usual)[rows], longer[rows])


def are_awaited(run: Run, numbers: Sequence[int], steps: NDArray[np.int64], longer: Floats) -> bool:
    """Whether all other ranks wait in collectives for as long as some take longer than usually.

    Then these wait for none of them meanwhile. It is unknown, and so not the case, if anybody else
    may wait, too, as where a driver calls the ranks.

    Args:
        steps: positions of the steps in which they take longer.
        longer: by how many nanoseconds.
    """
    ranks = comparable.only_group(run) or ()
    others = [process.number for process in ranks if process.number not in numbers]
    if not others or not len(steps):
        return False
    # where ranks meet in some steps only, as with local SGD, they wait there for earlier ones, too
    meets = (run.meeting > 0).any(axis=1)
    number_of_meeting = np.cumsum(meets) - meets
    inside = np.zeros((len(run.steps) + 1, len(run.processes)))
    np.add.at(inside, number_of_meeting, run.meeting)
    by_meeting = np.bincount(number_of_meeting[steps], longer, len(inside))
    chosen = np.unique(number_of_meeting[steps])
    chosen = chosen[chosen < meets.sum()]
    waits = inside[:, others].min(axis=1) - inside[:, list(numbers)].max(axis=1)
    if not len(chosen):
        return False
    return bool(np.median(waits[chosen]) >= _NEARLY_ALL * np.median(by_meeting[chosen]) > 0)


def _lacks_peers(suspicion: Straggler, parts: Sequence[frozenset[int]]) -> bool:
    """Whether the suspected ranks are all that have their part in the job."""
    return any(part <= set(suspicion.processes) for part in parts)


def _may_wait_outside(run: Run, suspicion: Straggler, late: Straggler | None) -> bool:
    """Whether a suspicion about time outside scopes tells nothing new.

    The ranks may wait there, and either they are too many to be slow, or they only start late.
    """
    if suspicion.place != OUTSIDE or comparable.works_outside(run, suspicion.processes):
        return False
    if suspicion.kind == "imbalance" and not suspicion.awaited:
        return True
    if late is None or not set(suspicion.names) <= set(late.names):
        return False
    return late.excess >= _NEARLY_ALL * suspicion.excess


def _only_calls_more(
    run: Run, slow: Straggler, ranks: Sequence[Sequence[Process]], places: Sequence[int]
) -> bool:
    """Whether ranks take longer at some places only because they make more calls, each as fast.

    This happens where ranks run freely and another rank is slow.
    """
    if slow.kind != "rank":
        return False
    processes = list(chain.from_iterable(ranks))
    mine = np.array([rank[0].number in slow.processes for rank in ranks])
    excess, with_usual_calls = np.zeros(mine.sum()), np.zeros(mine.sum())
    for place in places:
        calls = of_ranks(run.matrix("calls", place, processes), ranks)[run.usual].sum(axis=0)
        times = comparable.own_time(run, place, ranks)[run.usual].sum(axis=0)
        usual_calls, usual_time = np.median(calls[~mine]), np.median(times[~mine])
        excess += times[mine] - usual_time
        with_usual_calls += times[mine] / calls[mine].clip(1) * usual_calls - usual_time
    return bool((with_usual_calls <= _BY_TIME * excess).all())


def _rows_to_compare(times: Floats) -> NDArray[np.int64]:
    """The steps to compare ranks in: all, or those with any time if most steps have none."""
    present = (times > 0).any(axis=1)
    if odds.LEAST_STEPS <= present.sum() <= len(times) / 2:
        return np.flatnonzero(present)
    return np.arange(len(times))


@attrs.define(eq=False)
class _Compared:
    """What takes times that can be compared, such as the ranks of a group, at a place.

    Args:
        times: nanoseconds by step and column.
        group: the group.
        names: the name of each column: a worker's, or a node's.
        processes: of each column, the positions in `Run.processes`.
        place: a position in `Run.places`, `ALL` or `BEFORE`.
        width: how many steps are one observation.
    """

    times: Floats
    group: str
    names: Sequence[str]
    processes: Sequence[tuple[int, ...]]
    place: int = ALL
    width: int = 1

    def of(
        self,
        times: Floats,
        columns: NDArray[np.int64] | None = None,
        place: int = ALL,
        width: int = 1,
    ) -> _Compared:
        """Other times of the same ranks, or of some of them."""
        if columns is None:
            columns = np.arange(len(self.names))
        names = [self.names[column] for column in columns]
        processes = [self.processes[column] for column in columns]
        return _Compared(times[:, columns], self.group, names, processes, place, width)

    def _suspicion(
        self,
        kind: Kind,
        columns: NDArray[np.int64] | Sequence[int],
        chance: float,
        own: Floats,
        others: Floats,
        most: Floats,
        parts: Sequence[tuple[int, int]] = (),
    ) -> Straggler:
        return Straggler(
            kind,
            self.group,
            tuple(self.names[column] for column in columns),
            tuple(number for column in columns for number in self.processes[column]),
            self.place,
            int((own > most).sum()),
            int((own != most).sum()),
            min(1.0, chance),
            own,
            others,
            most,
            parts=tuple(parts),
        )

    def slowest(self, kind: Kind, least: float) -> Straggler | None:
        """The smallest set of columns that costs nearly as much as any set, as a hypothesis.

        Args:
            kind: what they would be.
            least: nanoseconds that matter.
        """
        times, count = self.times, len(self.names)
        is_late = kind == "late start"
        usual_times = np.median(times, axis=0) if is_late else times.mean(axis=0)
        order = np.argsort(-usual_times, kind="stable")
        falling = usual_times[order]
        sets = []
        for size in range(1, max(1, min(count // 2, _MOST_RANKS if kind == "rank" else 1)) + 1):
            # ranks that differ by as much among themselves as from the next one are no set, and do
            # not stand out from others that differ by as much; if ranks are called in turn, or call
            # each other in turn, all of them begin apart
            usual_time = falling[-1] if is_late else np.median(falling[size:])
            spread = max(falling[0] - falling[size - 1], falling[size] - usual_time)
            if falling[size - 1] - falling[size] <= spread:
                continue
            if self.width > 1 and not _stands_out(falling, size):
                continue
            columns, rest = order[:size], order[size:]
            own, most = times[:, columns].max(axis=1), times[:, rest].max(axis=1)
            others = np.median(times[:, rest], axis=1)
            sets.append(self._suspicion(kind, columns, 1.0, own, others, most))
        if not sets:
            return None
        gains = [each.gain for each in sets]
        chosen = sets[next(at for at, gain in enumerate(gains) if gain >= _NEARLY_ALL * max(gains))]
        size = len(chosen.names)
        # correlate who is the slowest, not by how much: all ranks may get slower together
        leads = (chosen.own > chosen.most)[:: self.width].astype(float)
        share = odds.independent_share(leads) / self.width
        chance = odds.tail(chosen.slowest * share, chosen.steps * share, size / count)
        of_each = np.median(times, axis=0)
        usually = of_each[order[:size]].min() - np.median(of_each[order[size:]])
        if count > 2 and usually >= least:  # else few steps cost much, or what is certain little
            chance = 2 * min(chance, _chance_of_ranks(times[:: self.width], order[:size]))
        # what is certain from few steps, as where calls are rare: no time of the others is as long
        of_few = odds.apart(chosen.own[:: self.width], chosen.most[:: self.width])
        chosen.probability = odds.of_any(min(chance, 2 * of_few), count, size)
        return chosen

    def slow_or_more_to_do(
        self,
        parts: Sequence[frozenset[int]],
        least: float,
        share_calls: Callable[[NDArray[np.bool_]], bool],
    ) -> Straggler | None:
        """The slow ranks; or, if times cannot tell, those that are slow or have more to do.

        Args:
            parts: the sets of processes that have one part by the record.
            least: nanoseconds by which the times of two parts differ.
            share_calls: whether the chosen columns and the others take calls from each other.
        """
        times, count = self.times, len(self.names)
        suspicion = self.slowest("rank", least)
        slow: set[int] = set()
        if suspicion is not None and suspicion.probability < odds.CERTAIN:  # else perhaps a pause
            slow = set(suspicion.processes)
        usual_times = np.median(times, axis=0)  # a pause says nothing about a rank's part
        order = np.argsort(-usual_times, kind="stable")
        all_numbers = set(chain.from_iterable(self.processes))
        halves = {count // 2, count - count // 2}
        if count < (_LEAST_ODD if count % 2 else _LEAST_RANKS):
            halves = set()
        # a half that the record does not tell of is one only where the times have their largest gap
        gaps = -np.diff(usual_times[order])
        halves = {size for size in halves if 2 * gaps[size - 1] >= gaps.max()}
        of_parts = {part & all_numbers for part in parts}
        for size in sorted({*halves, *map(len, of_parts)} - {0, count}):
            columns, rest = order[:size], order[size:]
            numbers = {number for column in columns for number in self.processes[column]}
            is_part = numbers in of_parts
            if not slow <= numbers or (size not in halves and not is_part):
                continue
            if not _are_two_kinds(usual_times[columns], usual_times[rest], least):
                continue
            if not is_part and share_calls(np.isin(np.arange(count), columns)):
                continue  # whoever is free does any of the work, so all have the same part
            own, others = np.median(times[:, columns], axis=1), np.median(times[:, rest], axis=1)
            chance = _chance_of_ranks(times[:: self.width], columns)
            chance = chance * len(of_parts) if is_part else odds.of_any(chance, count, size)
            return self._suspicion("imbalance", columns, chance, own, others, others)
        return suspicion

    def late(self, least: float) -> list[Straggler]:
        """The ranks that are late in most steps, or each that is for a while, as hypotheses."""
        late = self.slowest("late start", least)
        if late is not None and late.probability < odds.CERTAIN and late.gain >= least:
            return [late]
        return self._for_a_while("late start") or ([] if late is None else [late])

    def changing(self) -> list[Straggler]:
        """The rank that gets slower, and those that are slow for a while, as hypotheses."""
        passing = self._for_a_while("drift") if self.width == 1 else []
        drift = self._drifting()
        if drift is not None and drift.names not in [each.names for each in passing]:
            passing.append(drift)
        return passing

    def _drifting(self) -> Straggler | None:
        """The rank that gets slower than the others as steps go by, as a hypothesis."""
        rows = self.times[:: self.width]
        steps, count = rows.shape
        if steps < _LEAST_ROWS:
            return None
        quarter = max(1, steps // 4)
        column = int((rows[-quarter:].mean(axis=0) - rows[:quarter].mean(axis=0)).argmax())
        ratio = (rows / of_others(rows).clip(1))[:, [column]]
        quarters = slice(quarter), slice(-quarter, None)
        first, last = (float(np.median(ratio[part])) for part in quarters)
        correlation = float(levels.correlations(ratio)[0])
        if last < _DRIFT * first or correlation < (_RISING if count > 2 else _RISING_OF_TWO):
            return None
        # chance alone makes these 1 on average, if steps do not resemble those before them
        of_rest = np.zeros(1)
        if count > 2:  # beside each other: beside the one that gets slower, they get faster
            rest = np.delete(rows, column, axis=1)
            of_rest = levels.trends(levels.correlations(rest / of_others(rest).clip(1)), steps)
        usual_trend = max(1.0, math.sqrt(float((of_rest**2).mean())))
        trend = float(levels.trends(np.array(correlation), steps))
        chance = count * math.erfc(trend / usual_trend / math.sqrt(2)) / 2
        own, rest = self.times[:, column], np.delete(self.times, column, axis=1)
        others, most = np.median(rest, axis=1), rest.max(axis=1)
        return self._suspicion("drift", [column], chance, own, others, most)

    def _for_a_while(self, kind: Kind) -> list[Straggler]:
        """Ranks that are slow in one part of the run, or in several, as hypotheses.

        The excess of such a rank over the others has two levels, which explain it better than a
        line does. At least half of the ranks have no part in which they differ half as much from
        the rest of their steps.
        """
        times = self.times
        steps, count = times.shape
        if count < 2 or steps < 2 * odds.LEAST_STEPS:
            return []
        others = of_others(times)
        # all ranks may get slower, and what a slow one takes longer with them
        ratios = kind == "drift"
        excess = np.log(times.clip(1) / others.clip(1)) if ratios else times - others
        absolute = np.log(times.clip(1)) if ratios else times
        parts = levels.highest_parts(excess)
        within = np.stack([levels.rows_within([part], steps) for part in parts], axis=1)
        lengths = within.sum(axis=0)
        long = (lengths >= odds.LEAST_STEPS) & (lengths <= levels.LARGEST_PART * steps)
        rises = np.zeros(count)
        rises[long] = levels.rises_of(excess[:, long], within[:, long])
        if count < _PEERS:  # another one may have been faster meanwhile
            itself = levels.rises_of(absolute[:, long], within[:, long])
            rises[long] = np.minimum(rises[long], itself)
        usual = float(np.sort(rises)[(count - 1) // 2])
        least = max(2 * usual, math.log(_DRIFT) if ratios else 0.0)
        found = []
        second, first = np.partition(times, -2, axis=1)[:, -2:].T
        for column in np.flatnonzero(rises > least).tolist():
            its_parts = levels.high_parts(excess[:, column])
            chance = count * levels.chance_of(excess[:, column], its_parts, rises[column])
            if chance < 1:
                most = np.where(times.argmax(axis=1) == column, second, first)
                own, usually = times[:, column], others[:, column]
                found.append(self._suspicion(kind, [column], chance, own, usually, most, its_parts))
        return found


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


def _are_two_kinds(longer: Floats, shorter: Floats, least: float) -> bool:
    """Whether times are of two kinds, and not only a long and a short part of times of one kind."""
    freedom = max(1, len(longer) + len(shorter) - 2)
    spread = math.sqrt((len(longer) * longer.var() + len(shorter) * shorter.var()) / freedom)
    return bool(longer.mean() - shorter.mean() > max(least, _TWO_KINDS * spread))


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
        nodes = Counter(run.processes[number].node for number in suspicion.processes)
        (node, count), *_ = nodes.most_common()
        is_of_node = count >= _NEARLY_ALL * len(suspicion.processes)
        is_late = suspicion.kind == "late start"  # which says nothing about how fast its node is
        tells = (
            not is_late and node in slow_nodes and _tells(run, suspicion, parts, slow_nodes[node])
        )
        if is_of_node and tells:
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
    workers = comparable.members(run, suspicion.group)
    if suspicion.kind == "node":
        mine = [rank for rank in workers.values() if rank[0].node in suspicion.names]
        others = [rank for rank in workers.values() if rank[0].node not in suspicion.names]
    else:
        mine = [workers[name] for name in suspicion.names]
        others = [rank for name, rank in workers.items() if name not in suspicion.names]
    excess = {}
    for place in comparable.places_of(run, suspicion.group):
        times = comparable.pace(run, place, [*mine, *others])[usual].mean(axis=0)
        excess[place] = float(times[: len(mine)].mean() - times[len(mine) :].mean())
    if not excess:
        return ALL
    worst = max(excess, key=excess.__getitem__)
    return worst if excess[worst] >= 0.5 * sum(max(0.0, loss) for loss in excess.values()) else ALL


def _work_ratios(run: Run, node: str, usual: Sequence[int]) -> dict[tuple[str, str], float]:
    """Each worker's work on a node, divided by the median of its group's workers on other nodes."""
    ratios = {}
    for group in run.groups:
        workers = comparable.members(run, group)
        others = [rank for rank in workers.values() if rank[0].node != node]
        mine = {name: rank for name, rank in workers.items() if rank[0].node == node}
        if not others or not mine:
            continue
        work = comparable.shared_work(run, group, _DIFFERS)[usual].mean(axis=0)
        if not work.any():  # then its ranks are as fast on all nodes
            work = comparable.shared_work(run, group)[usual].mean(axis=0)
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
    ranks = list(comparable.members(run, group).values())
    times = comparable.own_time(run, place, ranks)[run.usual]
    doing = comparable.doing_ranks(times)
    times = times[:, doing]
    steps, count = times.shape
    present = times > 0
    if steps < odds.LEAST_STEPS or present.sum(axis=1).min() < 2:
        return False
    if not present.all():  # a rank may stay away, but those that run freely are slow by chance
        calls = of_ranks(run.matrix("calls", place, list(chain.from_iterable(ranks))), ranks)
        if not comparable.are_steady(np.where(present, calls[run.usual][:, doing], 1)):
            return False
    slowest = times.argmax(axis=1)
    most = int(np.bincount(slowest).max())
    if 2 * most > _BY_TURNS * steps or count * odds.tail(most, steps, 1 / count) < _NO_TURNS:
        return False
    logs = np.log(np.where(present, times, np.nan))
    first, second = np.sort(np.nan_to_num(logs, nan=-np.inf), axis=1)[:, :-3:-1].T
    leads = first - second
    steady = 1 + 0.65 / count + 3 / math.sqrt(steps) + 7 / steps
    if leads.mean() >= max(comparable.LEAST_SHARE, steady * leads.std()):
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

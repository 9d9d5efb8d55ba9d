"""Collectives that nobody recorded, recognised by their times.

DDP reduces gradients in C++, inside `backward`. A rank that waits there looks as if it worked. But
a collective ends on all its ranks at once, however early each of them began. So where the calls of
a scope begin apart and end together, each rank waited until the last one began. Where not all ranks
end together, those of a process group may, or those of any set that ends together in most steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.roles import are_one_group, process_groups
from gpuprof._analysis.run import WAIT, Collective, Place, Process, Run
from gpuprof._analysis.waits import BARRIER
from gpuprof._artifacts import ledger as ledgers
from gpuprof._session.ledger import key_of

Integers = NDArray[np.int64]

_LEAST_STEPS = 8
_MOST_CALLS = 64
"""Calls of a place in a step. Matching more of them across ranks is not worth the time."""
_APART = 0.02
"""Share of a step by which the calls' beginnings must differ to tell anything."""
_LEAST_APART = 3
"""Steps in which they must. In most steps the ranks may come together, such as before and after
checkpoints of one of them."""
_TOGETHER = 0.15
"""Share of the difference of the beginnings by which the ends may differ."""
_SLOPE = 0.7
"""How much longer a rank's call has to take for each second that the rank begins earlier: 1 if the
rank waits for the others, 0 if it works."""
_TELLING = 0.05
"""Share of the difference of the beginnings by which something has to vary, so that its slope tells
anything."""
_UNSURE = 0.25
"""Standard error from which a slope tells nothing, where the ends are equal: what follows the last
beginning may itself vary much more than that beginning."""
_EXACT = 0.05
"""Share of the difference of the beginnings. Ends that differ by less are not equal by chance."""
_ONE_GROUP_SLOPE = 0.25
"""`_SLOPE` for the ranks of one process group, which are known to communicate. The slope must
exceed it by two standard errors. On a busy machine, ranks wake up late after a collective, by
chance."""
_CONVERGE = 0.8
"""How far apart these ranks may end their calls, at most, relative to how far apart they begin."""
_AFTER = 0.95
"""Share of the calls of one process group in which all ranks must end after the last one begins."""
_MOSTLY_AFTER = 0.5
"""The same of any ranks: clocks of nodes differ, but nobody leaves a collective before all are in
it. A stage of a pipeline that follows another one ends shortly after it."""
_FOLLOWS = 0.5
"""How much later the calls have to end for each second that the last rank begins later: 1 if the
ranks wait for that rank, 0 if something else ends their wait."""
_MOSTLY = 0.9
"""Share of the steps in which ranks must end together to be one set, if ranks that end together in
half of the steps do not all meet: in some steps, one set of them may be late."""
_ACCUMULATES = "backward"
"""The scope that a rank may enter several times before it meets the others."""
_MOST_ALONE = 16
"""Stop looking for sets after this many ranks that end together with no other rank."""


def recognise(run: Run) -> list[Collective]:
    """Find the places where ranks wait for each other, and add these waits to the run's ledgers.

    Each call there gets an inner scope, marked as waiting for the ``barrier``. It lasts from the
    call's beginning until the last rank begins its own call. The real wait may be shorter, because
    the work of a rank before the reduction is not recorded.
    """
    collectives = []
    for group, members in run.groups.items():
        if len(members) < 2 or len({process.rank for process in members}) < len(members):
            continue
        hidden: set[int] = {
            number for number, waits in enumerate(run.waiting_places.tolist()) if waits
        }
        # innermost first: the scopes around a wait begin apart and end together as well
        for place in sorted(_shared_places(members), key=lambda p: -run.places[p].depth):
            if place in hidden or _has_below(run, place, hidden):
                continue
            meetings = _meetings(run, members, place)
            if meetings:
                collectives.append(Collective(group, run.places[place].path))
                hidden.add(place)
                _add_waits(run, place, meetings)
    return collectives


_Meeting = tuple[Sequence[Process], Sequence["_Calls"]]
"""Processes that wait for each other, and the calls in which they do."""


def _meetings(run: Run, members: Sequence[Process], place: int) -> list[_Meeting]:
    """The sets of ranks that wait for each other in a place: all ranks as one set, or several."""

    def those(of: Sequence[Process]) -> _Meeting:
        one_group = are_one_group(of)
        return of, [call for call in _aligned(run, of, place) if call.meets(run, one_group)]

    calls = _aligned(run, members, place)
    one_group = are_one_group(members)
    meet = [call for call in calls if call.meets(run, one_group)]
    if meet:
        return [(members, meet)]
    # torch's process groups are known; ranks outside of them are matched by their times
    meetings = []
    by_number = {process.number: process for process in members}
    for numbers in chain.from_iterable(process_groups(members).values()):
        if by_number.keys() >= set(numbers):
            meeting = those([by_number[number] for number in numbers])
            if meeting[1]:
                meetings.append(meeting)
                for number in numbers:
                    del by_number[number]
    rest = list(by_number.values())
    if meetings:
        calls = _aligned(run, rest, place) if rest else []
    for together in _ending_together(run, rest, calls, 0.5):
        meeting = those(together)
        if meeting[1]:
            meetings.append(meeting)
        elif len(together) > 2:
            # a rank that is late in some steps holds up only those that meet it
            calls_of_these = _aligned(run, together, place)
            parts = _ending_together(run, together, calls_of_these, _MOSTLY)
            meetings += [part for part in map(those, parts) if part[1]]
    return meetings


def _ending_together(
    run: Run, members: Sequence[Process], calls: Sequence[_Calls], share: float
) -> Iterator[Sequence[Process]]:
    """Sets of processes whose calls of a place end at the same time, in this share of the steps."""
    usual = [call.ends[call.usual] for call in calls]
    if not usual or not len(usual[0]):
        return
    length = float(np.median([step.duration for step in run.steps]))
    ends = np.concatenate(usual)
    columns = np.arange(len(members))
    singles = 0
    while len(columns) > 1 and singles < _MOST_ALONE:
        apart = np.abs(ends[:, columns] - ends[:, columns[:1]])
        distances = np.quantile(apart, share, axis=0)
        near = distances <= _TOGETHER * _APART * length
        if near.sum() > 1:
            yield [members[column] for column in columns[near].tolist()]
        else:
            singles += 1
        columns = columns[~near]


@attrs.frozen(eq=False)
class _Calls:
    """The calls of a place that have the same number in each step, on all ranks.

    Args:
        number: the number of the call in its step, from 0.
        steps: positions in `Run.steps`.
        usual: which of them count.
        rows: positions in the ledgers' spans, by step and rank.
        starts: when the calls began, in nanoseconds of the run, by step and rank.
    """

    number: int
    steps: Integers
    usual: NDArray[np.bool_]
    rows: Integers
    starts: Integers
    ends: Integers

    def meets(self, run: Run, one_group: bool) -> bool:
        """Whether the ranks wait for each other in these calls.

        Args:
            one_group: whether all the ranks are in one process group.
        """
        starts, ends = self.starts[self.usual], self.ends[self.usual]
        if len(starts) < _LEAST_STEPS:
            return False
        steps = [run.steps[position] for position in self.steps[self.usual].tolist()]
        length = float(np.median([step.duration for step in steps]))
        apart = np.ptp(starts, axis=1) >= _APART * length
        if apart.sum() < _LEAST_APART:
            return False
        start_spread = float(np.median(np.ptp(starts[apart], axis=1)))
        end_spread = float(np.median(np.ptp(ends[apart], axis=1)))
        # a busy machine may let ranks of one group end far apart
        after = (ends.min(axis=1) >= starts.max(axis=1)).mean()
        follow = one_group and after >= _AFTER
        if not follow and (after < _MOSTLY_AFTER or end_spread > _TOGETHER * start_spread):
            return False
        origin = np.array([[step.start] for step in steps], np.int64)
        began, took = (starts - origin).astype(float), (ends - starts).astype(float)
        last, end = began.max(axis=1), (ends - origin).max(axis=1).astype(float)
        of_ranks = -_centred(_centred(began, 1), 0), _centred(_centred(took, 1), 0), _SLOPE
        of_steps = _centred(last, 0), _centred(end, 0), _FOLLOWS
        # without variation, a slope would be fitted to noise
        little = max(2 * end_spread, _TELLING * start_spread)
        if follow:
            leads, durations = -_centred(began, 1), _centred(took, 1)
            slope, error = _slope(leads, durations), _error(leads, durations)
            converge = float(np.std(durations - leads)) <= _CONVERGE * float(np.std(leads))
            # the others may wake up late
            first = (ends - origin).min(axis=1).astype(float)
            follows = _slope(of_steps[0], _centred(first, 0)) >= _FOLLOWS
            return (
                converge
                and slope - 2 * error >= _ONE_GROUP_SLOPE
                and (follows or of_steps[0].std() <= little)
            )
        slopes = [fit for fit in (of_ranks, of_steps) if fit[0].std() > little]
        exact = end_spread <= _EXACT * start_spread
        return (exact or len(slopes) == 2) and all(
            _slope(of, on) >= least or (exact and _error(of, on) > _UNSURE)
            for of, on, least in slopes
        )


def _centred(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    deviations: NDArray[np.float64] = values - np.mean(values, axis=axis, keepdims=True)
    return deviations


def _slope(of: NDArray[np.float64], on: NDArray[np.float64]) -> float:
    """The slope of the least-squares line through centred values; 0 where `of` does not vary."""
    square = float((of * of).sum())
    return float((of * on).sum()) / square if square else 0.0


def _error(of: NDArray[np.float64], on: NDArray[np.float64]) -> float:
    """The standard error of that slope, where `of` varies."""
    residuals = on - _slope(of, on) * of
    return math.sqrt(float((residuals**2).sum()) / len(of) / float((of * of).sum()))


def _shared_places(members: Sequence[Process]) -> set[int]:
    """The places that each of these processes has called often enough."""
    sets: list[set[int]] = []
    for process in members:
        counts = np.bincount(process.ledger.spans["place"], minlength=len(process.places))
        sets.append(set(process.places[counts >= _LEAST_STEPS].tolist()))
    return set.intersection(*sets) - {-1}


def _has_below(run: Run, place: int, hidden: set[int]) -> bool:
    """Whether any of the hidden places is inside the given place, or is that place."""

    def around(number: int) -> Iterator[int]:
        while number >= 0:
            yield number
            number = run.places[number].parent

    return any(place in around(number) for number in hidden)


def _aligned(run: Run, members: Sequence[Process], place: int) -> list[_Calls]:
    """The calls of a place, in steps in which all ranks make the usual number of them.

    If ranks that mark their own steps go `backward` different numbers of times, only the last time
    in each step: with gradients that are accumulated, that is when they meet.
    """
    counts, rows, firsts, lasts = [], [], [], []
    for process in members:
        spans, offset = process.ledger.spans, process.ledger.offset
        mine = np.flatnonzero((process.places == place)[spans["place"]])
        mine = mine[np.argsort(spans["start"][mine], kind="stable")]
        starts = spans["start"][mine] + offset
        begins, ends = run.step_edges(process)
        own_steps = np.flatnonzero(ends > begins)
        own_steps = own_steps[np.argsort(begins[own_steps], kind="stable")]
        if not len(own_steps) or not len(mine):
            return []
        at = np.searchsorted(begins[own_steps], starts, "right") - 1
        inside = (at >= 0) & (starts < ends[own_steps[at]])
        steps = own_steps[at[inside]]
        counts.append(np.bincount(steps, minlength=len(run.steps)))
        rows.append(mine[inside])
        # the calls are in order of time, and so of the steps' beginnings
        first, last = np.full((2, len(run.steps)), -1)
        first[steps[::-1]] = np.arange(len(steps))[::-1]
        last[steps] = np.arange(len(steps))
        firsts.append(first)
        lasts.append(last)
    of_ranks = np.array(counts)
    same_count = (of_ranks == of_ranks[0]).all(axis=0) & (of_ranks[0] > 0)
    size = int(np.bincount(of_ranks[0][same_count]).argmax()) if same_count.any() else 0
    chosen = np.flatnonzero(same_count & (of_ranks[0] == size))
    mark_steps = run.edges.keys() >= {process.number for process in members}
    if len(chosen) < _LEAST_STEPS and mark_steps and run.places[place].name == _ACCUMULATES:
        firsts, size = lasts, 1
        chosen = np.flatnonzero((of_ranks > 0).all(axis=0))
    if len(chosen) < _LEAST_STEPS or size > _MOST_CALLS:
        return []
    calls, usual_steps = [], np.isin(chosen, run.usual)
    for number in range(size):
        at = np.stack(
            [row[first[chosen] + number] for row, first in zip(rows, firsts, strict=True)], axis=1
        )
        edges = [
            np.stack(
                [
                    process.ledger.spans[edge][at[:, column]] + process.ledger.offset
                    for column, process in enumerate(members)
                ],
                axis=1,
            )
            for edge in ("start", "end")
        ]
        calls.append(_Calls(number, chosen, usual_steps, at, *edges))
    return calls


def _add_waits(run: Run, place: int, meetings: Sequence[_Meeting]) -> None:
    """Add the scopes in which ranks wait, with a key for each meeting."""
    around = run.places[place]
    inner = len(run.places)
    inner_place = Place.inside(around, place, WAIT, BARRIER)
    run.places.append(attrs.evolve(inner_place, name=around.name))
    # cached, and stale with the new place
    run.__dict__.pop("waiting_places", None)
    run.__dict__.pop("_parents", None)
    rows = (
        (column, process, set_number, calls)
        for set_number, (members, calls) in enumerate(meetings)
        for column, process in enumerate(members)
    )
    for column, process, set_number, calls in rows:
        ledger = process.ledger
        number = len(ledger.places)
        outer = int(ledger.spans["place"][calls[0].rows[0, column]])
        above = ledger.places[outer]
        ledger.places.append(ledgers.Place(WAIT, outer, above.depth + 1, BARRIER, above))
        spans, links = [ledger.spans], [ledger.links]
        for call in calls:
            last = call.starts.max(axis=1)
            wait_spans = ledger.spans[call.rows[:, column]].copy()
            wait_spans["place"] = number
            wait_spans["end"] = np.minimum(last - ledger.offset, wait_spans["end"])
            spans.append(wait_spans)
            wait_links = np.zeros(len(wait_spans), ledger.links.dtype)
            for name in ("place", "track", "start", "end"):
                wait_links[name] = wait_spans[name]
            wait_links["role"] = ledgers.MEETS
            wait_links["key"] = [
                key_of(f"{process.group}:{place}:{set_number}:{call.number}:{step}")
                for step in call.steps.tolist()
            ]
            links.append(wait_links)
        ledger.spans, ledger.links = np.concatenate(spans), np.concatenate(links)
        process.places = np.append(process.places, inner)

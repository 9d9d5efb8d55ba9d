"""What the ranks of a group do, so that it can be compared: their work at each place, by step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import odds, roles
from gpuprof._analysis.run import OUTSIDE, Floats, Process, Run, by_name, of_ranks
from gpuprof._analysis.waits import DATA

LEAST_SHARE = 0.03
"""Share of a step by which a straggler must exceed the others' median to be named. It must exceed
the slowest of the others by as much, counting only the steps in which the straggler is slower."""
_SHARED = 0.25
"""How much ranks that share calls differ in their work, at most, relative to their calls: in logs.
"""
_BY_LENGTH = 0.5
"""By how much the calls of ranks that share them take longer, at least, relative to how many fewer
they make: in logs."""
_LEAST_CALLS = 3
"""Calls that a rank needs for the time of a call to be known."""


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


def only_group(run: Run) -> Sequence[Process] | None:
    """The ranks of the only group that works, so that they can wait for nobody else recorded.

    ``None`` if there are several, or a driver. Processes without scopes and steps do not count.
    """
    groups = [
        members
        for members in run.groups.values()
        if any(process.number in run.edges or len(process.ledger.spans) for process in members)
    ]
    return groups[0] if run.driver is None and len(groups) == 1 else None


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
    width, calls = steps_of_a_call(run, place, ranks)
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


def steps_of_a_call(run: Run, place: int, ranks: Sequence[Sequence[Process]]) -> tuple[int, Floats]:
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
    is_shared = are_called and _share(works / len(run.usual), counts / len(run.usual))
    if are_steady(calls[:, doing]) and not is_shared:
        return 0, calls
    return math.ceil(len(run.usual) / counts.min()), calls


def _share(works: Floats, counts: Floats) -> bool:
    """Whether some ranks make fewer calls because each takes longer, so that all work equally long.

    Up to a call: whoever is free takes one as long as there are any.

    Args:
        works: nanoseconds in a step, by rank.
        counts: calls in a step, by rank.
    """
    fewer, longer = -np.log(counts), np.log(works / counts)
    if np.ptp(np.log(works)) < _SHARED * np.ptp(fewer):
        return True
    fewer -= fewer.mean()
    slope = float((fewer * longer).sum()) / max(1e-9, float((fewer**2).sum()))
    up_to_a_call = np.abs(works - np.median(works)) <= works / counts
    return slope >= _BY_LENGTH and bool(up_to_a_call.all())


def is_steady(run: Run, place: int, ranks: Sequence[Sequence[Process]]) -> bool:
    """Whether each rank makes its usual number of calls at a place in most steps."""
    return not steps_of_a_call(run, place, ranks)[0]


def steady_work(run: Run, group: str) -> dict[int, Floats]:
    """Nanoseconds of work by step and rank, of each place that all ranks have in each step.

    Only of places in which ranks make equally many calls in most steps. In a step in which a rank
    makes more, the time of as many as usual counts.
    """
    ranks = list(members(run, group).values())
    work = {}
    for place in common_places(run, group):
        width, calls = steps_of_a_call(run, place, ranks)
        times = own_time(run, place, ranks)
        if not width and len(doing_ranks(times[run.usual])) == len(ranks):
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
    width, calls = steps_of_a_call(run, place, ranks)
    times = own_time(run, place, ranks)[run.usual].sum(axis=0)
    counts: Floats = calls.sum(axis=0)
    if not width or counts.min() < _LEAST_CALLS:
        return None
    longer = (times / counts)[slow].mean() / max(1.0, np.median((times / counts)[~slow]))
    works = times[slow].mean() / max(1.0, np.median(times[~slow]))
    return counts if longer > 1 and works < (1 + longer) / 2 else None


def are_steady(calls: Floats) -> bool:
    """Whether each rank makes its usual number of calls in most steps, one or more."""
    usual_calls = np.median(calls, axis=0).round()
    is_usual = np.abs(calls - usual_calls) < 0.25  # a call in two steps counts partly in each
    return bool(usual_calls.all() and is_usual.mean() >= roles.STEADY)


def works_outside(run: Run, processes: Iterable[int]) -> bool:
    """Whether all of some processes are known to work where they are in no scope."""
    return run.running.issuperset(processes)


def doing_ranks(times: Floats) -> NDArray[np.int64]:
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
        if len(doing_ranks(times[run.usual])) == len(ranks):
            total += times
    return total


def places_of(run: Run, group: str) -> list[int]:
    """The places in which the workers of a group have been."""
    numbers = [process.number for process in run.groups[group]]
    places: list[int] = np.unique(run.sums["place"][np.isin(run.sums["process"], numbers)]).tolist()
    return [*places, *outside(run, group)]


def common_places(run: Run, group: str) -> list[int]:
    """The places that the workers of a group entered in enough steps to be compared there."""
    numbers = [process.number for process in run.groups[group]]
    counts = np.bincount(run.sums["place"][np.isin(run.sums["process"], numbers)])
    least = min(len(run.usual) / 2, odds.LEAST_STEPS * len(numbers))
    places: list[int] = np.flatnonzero(counts > least).tolist()
    return [*places, *outside(run, group)]


def outside(run: Run, group: str) -> list[int]:
    """`OUTSIDE`, if nobody calls a group's ranks: all mark steps, or others have started them."""
    numbers = {process.number for process in run.groups[group]}
    return [OUTSIDE] if numbers <= run.edges.keys() or numbers <= run.started else []

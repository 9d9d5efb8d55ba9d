"""Steps that nobody marked: rounds of a driver's or a worker's calls, or iterations of a loop.

A driver that calls sample, train and sync in turn has a step for each round of the three. Rounds
may differ: some may also evaluate, or sample more often. So one call that comes once in each round
tells where rounds begin, and the others belong to the round in which they were sent.

Workers may call others themselves, in a loop that a single call of the driver's has started. Then
they have steps of their own.

Ranks without a driver have noted the iterations of the loops around their collectives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby, pairwise, product
from operator import itemgetter
from pathlib import PurePath
from typing import Any

import attrs
import numpy as np

from gpuprof._analysis.run import Integers, Process, Run, Step
from gpuprof._artifacts.ledger import RELEASES, STEP, WAITS, Ledger
from gpuprof._session.instruments.ray_calls import SERIALIZE
from gpuprof._session.ledger import LOOP

_LEAST_ROUNDS = 8
_MANY_ROUNDS = 16
"""A loop with fewer iterations may be around the loop of the steps, as one over epochs is."""
_ONCE = 2
"""Calls of a method that say nothing yet of a loop: a warm-up and the call itself."""
_MOST_CALLS = 20_000
_MOST_CALLS_OF_WORKERS = 200_000
_USUAL = 0.8
"""Share of the rounds that must have a method for it to be the round's own, and of those that must
have the same methods in the same order."""
_IN_ROUNDS = 0.75
"""Share of the loop's calls that must be the rounds' own: more would be another loop's."""
_IN_LOOP = 0.5
"""Share of the driver's calls that the loop must contain."""
_IN_PAUSES = 0.9
"""Share of the time between collectives that the pauses between steps make up."""
_LONG = 5
"""How many times as long as the other steps of an optimizer those that begin a burst must be."""
_MOST_OF_IT = 0.5
"""Share of the time that these must take: a checkpoint now and then is none."""
_UNEVEN = 0.35
"""By how much the number of steps in a burst may vary, relative to its mean."""
_MOST_SENDERS = 4
"""Processes whose calls are looked at for a step to propose."""

Method = tuple[str, str]
"""A worker group, and the name of a method or task."""


@attrs.frozen
class Call:
    """Calls of one method that were sent in a row, with no wait in between.

    Args:
        time: when the first of them was sent, in nanoseconds.
        actors: the workers that were called; for a task, which any worker may run, the group.
        alone: whether all earlier calls of the method had been waited for.
        waits: how many waits of the sender had ended before.
        times: how many they are.
    """

    method: Method
    time: int
    actors: frozenset[str]
    alone: bool = True
    waits: int = 0
    times: int = 1


@attrs.frozen
class Rounds:
    """Where a sequence of calls repeats itself.

    Args:
        starts: the positions at which rounds begin; at the last one, the last round ends.
        extra: methods that only some of the rounds call.
    """

    starts: tuple[int, ...]
    methods: tuple[Method, ...]
    extra: tuple[Method, ...] = ()

    def __str__(self) -> str:
        """The names of its methods, as people read them."""
        extra = f"; some also call {_names(self.extra)}" if self.extra else ""
        return _names(self.methods) + extra


def rounds(calls: Sequence[Call]) -> Rounds | None:
    """The shortest rounds in a driver's calls; ``None`` if the calls do not repeat.

    Tries each method as the one that comes once in a round. Counts the calls of one actor only,
    since a loop over several actors is not a round. Ignores calls of a pool, which are sent as soon
    as any earlier one ends, if other methods repeat in order. If there are only those, a round ends
    once all of them have been waited for.
    """
    of_pools = _of_pools(calls)
    return _shortest(calls, of_pools) or _shortest(calls, frozenset()) or _drained(calls)


def handed_out(calls: Sequence[Call]) -> Rounds | None:
    """Rounds of a loop that waits for any of its calls, and then sends another one."""
    of_pools = _of_pools(calls)
    times = Counter(call.method for call in calls)
    for method, count in times.most_common(1):
        if method in of_pools and count > _LEAST_ROUNDS and count >= _IN_ROUNDS * len(calls):
            starts = [at for at, call in enumerate(calls) if call.method == method]
            return Rounds(tuple(starts), (method,))
    return None


def _drained(calls: Sequence[Call]) -> Rounds | None:
    """Rounds of as many calls of one method, of which the driver waits for all before the next."""
    times: Counter[Method] = Counter()
    for call in calls:
        times[call.method] += call.times
    for method, count in times.most_common(1):
        starts = [at for at, call in enumerate(calls) if call.method == method and call.alone]
        of_round = [
            sum(call.times for call in calls[first:last] if call.method == method)
            for first, last in pairwise(starts)
        ]
        ((usual, whole),) = Counter(of_round).most_common(1) or [(0, 0)]
        is_loop = usual > 1 and whole >= max(_LEAST_ROUNDS, _USUAL * len(of_round))
        if is_loop and count >= _IN_ROUNDS * times.total():
            return Rounds(tuple(starts), (method,))
    return None


def _of_pools(calls: Sequence[Call]) -> frozenset[Method]:
    """Methods that are mostly called while earlier calls of them are still under way."""
    times = Counter(call.method for call in calls)
    overlaps = Counter(call.method for call in calls if not call.alone)
    return frozenset(m for m in times if overlaps[m] > times[m] / 2)


def _shortest(calls: Sequence[Call], of_pools: frozenset[Method]) -> Rounds | None:
    """The shortest rounds, in which some methods may come as often as they like."""
    by_method: dict[Method, Counter[str]] = {}
    for call in calls:
        if call.method not in of_pools:
            by_method.setdefault(call.method, Counter()).update(call.actors)
    longest: Rounds | None = None
    for method, actors in by_method.items():
        ((actor, count),) = actors.most_common(1)
        # the more rounds, the shorter; a longer round would hide a slow one among several
        if count > max(_LEAST_ROUNDS, len(longest.starts) if longest else 0):
            positions = [
                at for at, c in enumerate(calls) if c.method == method and actor in c.actors
            ]
            longest = _rounds_with(positions, calls, of_pools) or longest
    return longest and _with_waits(longest, calls)


def _with_waits(loop: Rounds, calls: Sequence[Call]) -> Rounds:
    """Join rounds that were sent with no wait in between.

    A driver may send several batches through a chain at once. If it never waits at all, the rounds
    stay as they are.
    """
    first, *others = loop.starts
    starts = [first]
    for at in others:
        if calls[at].waits > calls[starts[-1]].waits:
            starts.append(at)
    return attrs.evolve(loop, starts=tuple(starts)) if len(starts) > _LEAST_ROUNDS else loop


def _rounds_with(
    positions: Sequence[int], calls: Sequence[Call], of_pools: frozenset[Method]
) -> Rounds | None:
    """The rounds that contain one of the given positions each."""
    parts = [range(*edges) for edges in pairwise([*positions, len(calls)])]
    present = Counter(m for part in parts[:-1] for m in {calls[at].method for at in part})
    least = _USUAL * (len(parts) - 1)
    usual_methods = {method for method, count in present.items() if count >= least}
    own = usual_methods - of_pools

    def blocks(part: Iterable[int]) -> list[tuple[Method, int]]:
        """The rounds' methods in a part. Calls in a row count once, at the first one's position."""
        own_calls = [(calls[at].method, at) for at in part if calls[at].method in own]
        return [next(block) for _, block in groupby(own_calls, lambda pair: pair[0])]

    in_order = [blocks(part) for part in parts]
    orders = [tuple(method for method, _ in block) for block in in_order]
    ((usual, _),) = Counter(orders[:-1]).most_common(1)
    whole = [number for number, order in enumerate(orders[:-1]) if order == usual]
    first, last = whole[0], whole[-1] + 1
    loop = calls[positions[first] : positions[last]]
    if (
        last - first < _LEAST_ROUNDS
        or len(whole) < _USUAL * (last - first)
        or sum(call.method in usual_methods for call in loop) < _IN_ROUNDS * len(loop)
        or len(loop) < _IN_LOOP * len(calls)
        or (len(own) == 1 and not _is_loop_of_one(calls, parts[first:last], own))
    ):
        return None
    # The loop ends with a whole round; before its first one there may be a warm-up.
    final = orders[last][-1] if last == len(parts) - 1 else usual[-1]
    turn = (usual.index(final) + 1) % len(usual)

    def beginning(number: int) -> int | None:
        if orders[number] == usual or not turn:
            return in_order[number][turn][1]
        return next((at for method, at in in_order[number] if method == usual[turn]), None)

    starts = [at for number in range(first, last + 1) if (at := beginning(number)) is not None]
    methods = dict.fromkeys([*usual[turn:], *usual[:turn], *sorted(usual_methods - own)])
    extra = dict.fromkeys(call.method for call in loop if call.method not in usual_methods)
    return Rounds(tuple(starts), tuple(methods), tuple(extra))


def _is_loop_of_one(calls: Sequence[Call], parts: Sequence[range], own: set[Method]) -> bool:
    """Whether rounds with a single method of their own are steps.

    They are not steps in a pool, where each call is sent as soon as any earlier one ends. Nor are
    they in the inner of two loops, where another method is called after a varying number of rounds.
    """
    if not all(calls[at].alone for part in parts for at in part if calls[at].method in own):
        return False
    numbers: dict[Method, list[int]] = {}
    for number, part in enumerate(parts):
        for method in {calls[at].method for at in part} - own:
            numbers.setdefault(method, []).append(number)
    for positions in numbers.values():
        if len(positions) > _LEAST_ROUNDS:
            gaps = Counter(b - a for a, b in pairwise(positions))
            if gaps.most_common(1)[0][1] < _USUAL * gaps.total():
                return False
    return True


def find_steps(
    run: Run, driver: Process, find: Callable[[Sequence[Call]], Rounds | None] = rounds
) -> tuple[list[Step], str]:
    """The rounds of a driver's calls as steps, from 0, and in words what a round is.

    Empty if its calls do not repeat. A step lasts from the first call of a round to that of the
    next one, so the last round has no known end and is left out.

    Args:
        find: `rounds` or `handed_out`.
    """
    calls = sent_calls(run, driver)
    loop = find(calls) if len(calls) <= _MOST_CALLS else None
    if loop is None:
        return [], ""
    times = [calls[at].time for at in loop.starts]
    return [Step(number, *edges) for number, edges in enumerate(pairwise(times))], (
        f"the driver's calls: {loop}"
    )


def mark_rounds(run: Run) -> str:
    """Mark the rounds of the calls of workers that call others as steps, in their ledgers.

    Numbered from 0. Of several groups only the smallest counts: of workers that take each other's
    places each has rounds, and there is rather one trainer than one worker that generates for it.

    Returns:
        In words what a round is; empty if there are none, and no step is marked.
    """
    sizes = Counter(process.group for process in run.processes)
    senders: dict[str, list[Process]] = {}
    for process in run.processes:
        if process.role != "driver" and len(process.ledger.sent) > _ONCE:
            senders.setdefault(process.group, []).append(process)
    count = sum(len(p.ledger.sent) for processes in senders.values() for p in processes)
    if not 0 < count <= _MOST_CALLS_OF_WORKERS:
        return ""
    answering = _answering(run)
    group = min(senders, key=lambda group: (sizes[group], -len(senders[group][0].ledger.sent)))
    loops: dict[tuple[Method, ...], list[tuple[Process, list[int]]]] = {}
    for process in senders[group]:
        calls = sent_calls(run, process, answering)
        loop = rounds(calls)
        if loop is not None:
            starts = [calls[at].time - process.ledger.offset for at in loop.starts]
            loops.setdefault(loop.methods, []).append((process, starts))
    methods = max(loops, key=lambda methods: len(loops[methods]), default=())
    if not methods or len(loops[methods]) < _USUAL * sizes[group]:
        return ""
    for process, starts in loops[methods]:
        _mark(process.ledger, pairwise(starts))
    return f"calls of {group}: {_names(methods)}"


def _mark(ledger: Ledger, steps: Iterable[tuple[int, int]]) -> None:
    """Mark steps in a ledger, from 0: when each begins and ends there."""
    edges = [
        row
        for number, (begin, end) in enumerate(steps)
        for row in ((number, begin, 1), (number, end, 0))
    ]
    ledger.edges = np.array(edges, STEP)


def mark_iterations(ledgers: Sequence[Ledger]) -> str:
    """Mark the iterations of the ranks' loop around collectives as steps, in the ranks' ledgers.

    Numbered from 0. A step lasts from the end of the last collective before an iteration to the end
    of the last one in it. Of loops that come one after the other, all count.

    Returns:
        In words which loops these are; empty if there are none, and no step is marked.
    """
    of_ranks = [_iterations(ledger) for ledger in ledgers]
    counts = Counter(loops[0].count for loops in of_ranks if loops)
    if not counts:
        return ""
    usual = counts.most_common(1)[0][0]
    headers = next(loops[0].headers for loops in of_ranks if loops and loops[0].count == usual)
    # ranks with the same loops, or with others of as many iterations, are in step
    in_step: dict[int, _Iterations] = {}
    for number, loops in enumerate(of_ranks):
        same_loops = [loop for loop in loops if loop.headers == headers]
        candidates = (*same_loops, *loops)
        matches = [loop for loop in candidates if abs(loop.count - usual) <= len(headers)]
        if matches:
            in_step[number] = matches[0]
    if len(in_step) < 2:
        return ""
    for number, loop in in_step.items():
        _mark(ledgers[number], chain.from_iterable(map(pairwise, loop.stretches)))
    return f"the {'loops' if len(headers) > 1 else 'loop'} at {' and '.join(headers)}"


@attrs.frozen
class _Iterations:
    """Loops of a rank that come one after the other.

    Args:
        headers: where each of them is.
        stretches: for each of them, when its iterations began; all but the first one.
    """

    headers: tuple[str, ...]
    stretches: tuple[list[int], ...]

    @property
    def count(self) -> int:
        """How many beginnings there are in all."""
        return sum(map(len, self.stretches))


def _iterations(ledger: Ledger) -> list[_Iterations]:
    """The loops of a rank that may be those of steps, the likeliest first.

    The outermost loop with many iterations comes first, with those before and after it. A loop over
    epochs comes last, since another one is inside it.
    """
    loops: dict[int, Mapping[str, Any]] = {}
    for event in ledger.events:
        number = event.get("number")
        if event["event"] == LOOP and isinstance(number, int) and _is_level(event.get("level")):
            loops[number] = event
    meets = [at for at, place in enumerate(ledger.places) if place.key.startswith("torch.")]
    ends = np.sort(ledger.spans["end"][np.isin(ledger.spans["place"], meets)])
    if not loops or not len(ends):
        return []
    moments: dict[int, Integers] = {}
    headers = {number: (about.get("file"), about.get("line")) for number, about in loops.items()}
    for number, about in loops.items():
        starts = ledger.iterations["time"][ledger.iterations["loop"] == number]
        moments[number] = ends[(np.searchsorted(ends, starts, "right") - 1).clip(0)]
        inside = about.get("inside")
        if inside and (about.get("file"), inside) not in headers.values():
            # the loop around it has no collective of its own, which would tell its iterations
            moments[number] = moments[number][_long(starts - moments[number])]
    found = []
    for number, own in moments.items():
        if len(own) > _LEAST_ROUNDS:
            about = loops[number]
            order = bool(about.get("epochs")), len(own) < _MANY_ROUNDS
            # where a loop around it begins its next iteration, this one begins anew
            around = [m for at, m in moments.items() if loops[at]["level"] < about["level"]]
            stretch = np.unique(np.concatenate([own, *around]))
            stretch = stretch[(stretch >= own[0]) & (stretch <= own[-1])]
            file = about.get("file")  # a copy without names has none
            at = f"{PurePath(file).name}:" if isinstance(file, str) else "line "
            header = f"{at}{about.get('line')}"
            found.append((order, about["level"], header, stretch.tolist()))
    found.sort(key=lambda each: each[:2])
    return [_with_others(first, found) for first in found]


_Found = tuple[tuple[bool, bool], list[int], str, list[int]]


def _with_others(first: _Found, found: Sequence[_Found]) -> _Iterations:
    """A loop with those before and after it that are as likely the steps'."""
    chosen = [first]
    for other in found:
        apart = all(other[3][-1] <= one[3][0] or one[3][-1] <= other[3][0] for one in chosen)
        if other[0] == first[0] and apart:
            chosen.append(other)
    chosen.sort(key=lambda each: each[3])
    return _Iterations(tuple(each[2] for each in chosen), tuple(each[3] for each in chosen))


def _is_level(level: object) -> bool:
    return isinstance(level, list) and len(level) == 2 and all(isinstance(n, int) for n in level)


def _long(pauses: Integers) -> list[int]:
    """The positions of the pauses that end a step, of those between collectives.

    Between the collectives of one step a rank does next to nothing. So the pauses after steps make
    up most of the time. All pauses end a step if most of them are that long.
    """
    longest_first = np.sort(pauses)[::-1]
    sums = np.cumsum(longest_first)
    count = int(np.searchsorted(sums, _IN_PAUSES * sums[-1])) + 1 if len(sums) else 0
    if count >= len(pauses) / 2:
        return list(range(len(pauses)))
    # a machine that is busy for a moment makes a few of the others long
    long, short = np.median(longest_first[:count]), np.median(longest_first[count:])
    positions: list[int] = np.flatnonzero(pauses > np.sqrt(long * short)).tolist()
    return positions


def bursts(durations: Sequence[int]) -> list[int]:
    """The positions of the steps of an optimizer that begin a burst; empty if there are none.

    A job that collects samples for a while, and then makes a step for each batch of them, has one
    long step and several short ones in each of its iterations.

    Args:
        durations: of all its steps, each from the end of the step before it.
    """
    times = np.array(durations, float)
    if len(times) < 2 * _LEAST_ROUNDS:
        return []
    short = float(np.quantile(times, 0.25))
    long = float(np.median(times[times > _LONG * short])) if times.max() > _LONG * short else 0.0
    # a busy machine makes some of the others longer, by less
    positions = np.flatnonzero(times > max(_LONG * short, long / 3))
    gaps = np.diff(positions)
    if len(gaps) < _LEAST_ROUNDS or gaps.min() < 2 or gaps.std() > _UNEVEN * gaps.mean():
        return []
    firsts: list[int] = positions.tolist()
    return firsts if times[positions].sum() >= _MOST_OF_IT * times.sum() else []


_Answering = Mapping[int, tuple[Process, str]]
"""By the key of a call: the process that ran it, and the name of the method or task."""


def _answering(run: Run) -> _Answering:
    return {
        key: (process, process.ledger.places[place].key)
        for process in run.processes
        for key, place in _links(process, RELEASES, "key", "place")
        if process.ledger.places[place].key != SERIALIZE
    }


def sent_calls(run: Run, process: Process, answering: _Answering | None = None) -> list[Call]:
    """The calls that a process sent to others, in order.

    Args:
        answering: who ran which call, if the caller knows.
    """
    answering = _answering(run) if answering is None else answering
    wait_ends: dict[int, int] = {}
    for key, end in _links(process, WAITS, "key", "end"):
        wait_ends[key] = min(end, wait_ends.get(key, end))
    waits = sorted(set(wait_ends.values()))
    calls: list[Call] = []
    before = -1
    over: dict[Method, float] = {}
    rows = process.ledger.sent
    # a call whose arguments are results of others has a row for each of them; whoever waits for it
    # has waited for them, too
    latest_first = rows[::-1]
    pairs = zip(latest_first["key"].tolist(), latest_first["needs"].tolist(), strict=True)
    for key, argument in pairs:
        if argument and key in wait_ends:
            wait_ends[argument] = min(wait_ends[key], wait_ends.get(argument, wait_ends[key]))
    starts = dict(zip(rows["key"].tolist(), rows["start"].tolist(), strict=True))
    for key, start in sorted(starts.items(), key=lambda item: item[1]):
        other, name = answering.get(key, (process, ""))
        if other is process:
            continue
        method = other.group, name
        waits_before = bisect_right(waits, start)
        alone = over.get(method, 0) <= start
        over[method] = max(over.get(method, 0), wait_ends.get(key, float("inf")))
        # unlike a method, a task runs in whichever worker has room
        actor = other.name if "." in name else other.group
        if calls and calls[-1].method == method and waits_before == before:
            calls[-1] = attrs.evolve(
                calls[-1], actors=calls[-1].actors | {actor}, times=calls[-1].times + 1
            )
        else:
            time = start + process.ledger.offset
            calls.append(Call(method, time, frozenset([actor]), alone, waits_before))
        before = waits_before
    return calls


@attrs.frozen
class Called:
    """A method of an actor that a process calls again and again.

    Args:
        caller: the worker's name; empty for the driver.
    """

    caller: str
    name: str
    times: int


def most_called(run: Run) -> Called | None:
    """The method that is called most often; by the driver, unless it calls none repeatedly.

    Then by a worker of the smallest group: of workers that take each others' places, each has steps
    of its own, and there is rather one trainer than one worker that generates for it.
    """
    sizes = Counter(process.group for process in run.processes)
    senders = [process for process in run.processes if len(process.ledger.sent)]
    senders.sort(
        key=lambda process: (
            process.role != "driver",
            sizes[process.group],
            -len(process.ledger.sent),
        )
    )
    for process in senders[:_MOST_SENDERS]:
        methods: Counter[Method] = Counter()
        of_an_actor: Counter[tuple[Method, str]] = Counter()
        for call in sent_calls(run, process):
            if "." in call.method[1]:
                methods[call.method] += call.times
                of_an_actor.update(dict.fromkeys(product([call.method], call.actors), 1))
        repeated = [pair for pair in of_an_actor.items() if pair[1] > _ONCE]
        if repeated:  # a loop over many actors is none over steps
            (group, method), _ = max(repeated, key=itemgetter(1))[0]
            caller = "" if process.role == "driver" else process.name
            times = methods[group, method]
            return Called(caller, f"{group}.{method.rpartition('.')[2]}", times)
    return None


def _names(methods: Iterable[Method]) -> str:
    return ", ".join(dict.fromkeys(name for _, name in methods))


def _links(process: Process, role: int, *names: str) -> list[tuple[int, ...]]:
    rows = process.ledger.links
    rows = rows[rows["role"] == role]
    return list(zip(*(rows[name].tolist() for name in names), strict=True))

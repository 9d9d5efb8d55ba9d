"""When the ranks of a group begin their steps, and when they come to where they meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import comparable, roles
from gpuprof._analysis.path import CALLS
from gpuprof._analysis.run import Floats, Integers, Process, Run, rows_of
from gpuprof._analysis.waits import BARRIER
from gpuprof._artifacts.ledger import RELEASES, WAITS
from gpuprof._session.instruments.collectives import MESSAGES


def delays_of(run: Run, ranks: Sequence[Sequence[Process]], call_times: Called) -> Floats:
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
    call_times, usual = Called(run), {}
    for group in groups:
        ranks = list(comparable.members(run, group).values())
        if ranks and run.usual:
            delays = np.median(delays_of(run, ranks, call_times)[run.usual], axis=0)
            usual[group] = float(np.quantile(delays, 0.25, method="lower"))
    return usual


def arrivals(
    run: Run, group: str, ranks: Sequence[Sequence[Process]]
) -> Iterator[tuple[int, Floats, Floats]]:
    """Nanoseconds that each rank is in no scope before it meets the others, and with them.

    By step and rank, for each place in which all ranks of a group meet in most steps: before one of
    them this rank may be late, and before another one that. What is known to work counts since the
    last meeting. The nanoseconds with the others are 0
    where not all workers of the run meet at once. Leaves out places to which ranks come from
    different ones, as the last stage of a pipeline does: that tells nothing about who is late.
    """
    numbers = [process.number for process in chain.from_iterable(ranks)]
    if not comparable.outside(run, group) or comparable.works_outside(run, numbers):
        return
    delays: dict[int, Floats] = {}
    insides: dict[int, Floats] = {}
    befores: dict[int, set[int]] = {}
    keys: dict[int, list[Integers]] = {}
    meets = [p.waits_for == BARRIER and p.name not in MESSAGES for p in run.places]
    for column, rank in enumerate(ranks):
        for process in rank:
            place, start, end = _top_level(run, process)
            begins, ends = run.step_edges(process)
            marked = np.flatnonzero(ends)
            nth = np.searchsorted(begins[marked], start, "right") - 1
            at = marked[nth]
            inside = (nth >= 0) & (start < ends[at])
            since = np.maximum(np.append(begins[marked[:1]], end[:-1]), begins[at])
            late = np.where(inside, (start - since).clip(0), 0)
            places = [number for number in np.unique(place[inside]).tolist() if meets[number]]
            if process.number in run.running:  # before other scopes, others may wait for somebody
                meetings = np.flatnonzero(inside & np.isin(place, places))
                late[meetings] = np.diff(np.cumsum(late)[meetings], prepend=0)
            previous = np.append(-1, place[:-1])
            for number in places:
                mine = inside & (place == number)
                shape = len(run.steps), len(ranks)
                by_step = delays.setdefault(number, np.full(shape, -1.0))
                by_step[at[mine], column] = by_step[at[mine], column].clip(0)
                np.add.at(by_step[:, column], at[mine], late[mine])
                usually = np.unique(previous[mine], return_counts=True)
                befores.setdefault(number, set()).add(int(usually[0][usually[1].argmax()]))
                within = insides.setdefault(number, np.zeros(shape))
                np.add.at(within[:, column], at[mine], (end - start)[mine])
                links = process.ledger.links
                here = process.places[links["place"]] == number
                keys.setdefault(number, []).append(np.unique(links["key"][here]))
    alone = comparable.only_group(run) is not None
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


def begin_alike(run: Run, ranks: Sequence[Sequence[Process]], late: Sequence[int]) -> bool:
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
    mine = set(late)
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


class Called:
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

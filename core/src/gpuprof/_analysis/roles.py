"""Which ranks of a group may have another part than the others: a stage of a pipeline, say.

The record tells it by the process groups of torch.distributed, or by who meets whom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.run import Process, Run, of_ranks
from gpuprof._artifacts.ledger import MEETS
from gpuprof._session.instruments.collectives import MESSAGES
from gpuprof._session.ledger import PROCESS_GROUP

_MOST_RANKS = 1 << 20
STEADY = 0.9
"""Share of the steps in which a rank makes its usual number of calls."""
_Kind = tuple[str, int, int]
"""The kind of a process group: its name, its size, and the distance between its ranks."""


def process_groups(members: Sequence[Process]) -> dict[_Kind, list[tuple[int, ...]]]:
    """The process groups of some of these processes: positions in `Run.processes`, in order."""
    groups: dict[_Kind, list[tuple[int, ...]]] = {}
    for kind, numbers in _noted(members):
        if len(numbers) < len(members):
            groups.setdefault(kind, []).append(numbers)
    return groups


def are_one_group(members: Sequence[Process]) -> bool:
    """Whether a process group holds all of these processes."""
    return any(set(numbers) == {p.number for p in members} for _, numbers in _noted(members))


def _noted(members: Sequence[Process]) -> Iterator[tuple[_Kind, tuple[int, ...]]]:
    """Each process group in the ledgers, with those of the given processes that belong to it."""
    by_rank: dict[int, int] = {}
    groups: dict[str, list[range]] = {}
    names: dict[str, str] = {}
    for process in members:
        for event in process.ledger.events:
            if event["event"] == PROCESS_GROUP and (ranks := _ranges(event.get("ranks"))):
                if isinstance(rank := event.get("rank"), int):
                    by_rank[rank] = process.number
                groups[repr(ranks)] = ranks
                names[repr(ranks)] = str(event.get("name"))
    for key, ranks in groups.items():
        numbers = [by_rank[rank] for stretch in ranks for rank in stretch if rank in by_rank]
        if len(numbers) > 1:
            yield (names[key], len(numbers), ranks[0].step), tuple(numbers)


def _ranges(stretches: Any) -> list[range]:
    """The ranks of an event; empty if they are not what a process writes."""
    try:
        ranges = [range(first, first + step * count, step) for first, step, count in stretches]
    except (TypeError, ValueError):
        return []
    return ranges if sum(map(len, ranges)) <= _MOST_RANKS else []


def parts(run: Run, members: Sequence[Process]) -> list[frozenset[int]]:
    """Sets of processes that may have one part of a job, and the others another one.

    Processes with the same position in each process group of a kind are one set, such as a
    pipeline stage. So are processes that meet each other and nobody else.
    """
    sets: dict[frozenset[int], None] = {}
    for of_kind in process_groups(members).values():
        if len({number for numbers in of_kind for number in numbers}) == sum(map(len, of_kind)):
            sets |= dict.fromkeys(map(frozenset, zip(*of_kind, strict=True)))
    meeting_sets = _meeting(members)
    if len(meeting_sets) > 1:
        sets |= dict.fromkeys(meeting_sets)
    return [part for part in sets if 1 < len(part) < len(members)]


def by_places(run: Run, members: Sequence[Process]) -> list[frozenset[int]]:
    """Sets of processes with different parts: each set has scopes that no other set has.

    Empty if they are alike, or if one set only does more than the others, such as logging.
    """
    is_usual = np.zeros(len(run.steps), bool)
    is_usual[run.usual] = True
    width = len(run.places) + 1
    codes = run.sums["process"].astype(np.int64) * width + run.sums["place"]
    counts = np.bincount(codes[is_usual[run.sums["step"]]])
    regular: dict[int, set[int]] = {process.number: set() for process in members}
    for code in np.flatnonzero(2 * counts > len(run.usual)).tolist():
        process, place = divmod(code, width)
        if process in regular:
            regular[process].add(place)
    sets: dict[frozenset[int], set[int]] = {}
    for process, places in regular.items():
        sets.setdefault(frozenset(places), set()).add(process)
    own = [places - frozenset().union(*(sets.keys() - {places})) for places in sets]
    return list(map(frozenset, sets.values())) if len(sets) > 1 and all(own) else []


def by_calls(run: Run, place: int, ranks: Sequence[Sequence[Process]]) -> list[frozenset[int]]:
    """Sets of processes whose ranks make the same number of calls at a place.

    Empty if all ranks make the same number, or if it changes from step to step, as where ranks run
    freely.
    """
    members = list(chain.from_iterable(ranks))
    calls = of_ranks(run.matrix("calls", place, members), ranks)[run.usual].round()
    usual_calls = np.median(calls, axis=0)
    counts = np.unique(usual_calls)
    if len(counts) < 2 or (calls == usual_calls).mean() < STEADY:
        return []
    return [
        frozenset(process.number for column in np.flatnonzero(usual_calls == count).tolist()
                  for process in ranks[column])
        for count in counts
    ]  # fmt: skip


def _meeting(members: Sequence[Process]) -> list[frozenset[int]]:
    """The processes that meet each other, directly or by others, set by set.

    Messages between two do not count: they connect all stages of a pipeline.
    """
    keys = []
    for process in members:
        links, places = process.ledger.links, process.ledger.places
        messages = np.array([place.key in MESSAGES for place in places], bool)
        meets = (links["role"] == MEETS) & ~messages[links["place"]]
        keys.append(np.unique(links["key"][meets]))
    if not any(map(len, keys)):
        return []
    column = np.repeat(np.arange(len(members)), [len(row) for row in keys])
    _, key = np.unique(np.concatenate(keys), return_inverse=True)
    label: NDArray[np.int64] = np.arange(len(members))
    while True:
        least = np.full(key.max() + 1, len(members))
        np.minimum.at(least, key, label[column])
        lower = label.copy()
        np.minimum.at(lower, column, least[key])
        if (lower == label).all():
            break
        label = lower
    numbers = np.array([process.number for process in members])
    return [frozenset(numbers[label == value].tolist()) for value in np.unique(label)]

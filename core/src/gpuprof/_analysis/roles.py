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
from gpuprof._session.ledger import PROCESS_GROUP

_MOST_RANKS = 1 << 20
_STEADY = 0.9
"""Share of the steps in which a rank makes its usual number of calls."""
_Kind = tuple[str, int, int]
"""Of process groups: their name, how many members they have, and how far apart those are."""


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
    """Each process group that the processes have noted, with those of them that are in it."""
    by_rank: dict[int, int] = {}
    noted: dict[str, list[range]] = {}
    names: dict[str, str] = {}
    for process in members:
        for event in process.ledger.events:
            if event["event"] == PROCESS_GROUP and (ranks := _ranges(event.get("ranks"))):
                if isinstance(rank := event.get("rank"), int):
                    by_rank[rank] = process.number
                noted[repr(ranks)] = ranks
                names[repr(ranks)] = str(event.get("name"))
    for key, ranks in noted.items():
        there = [by_rank[rank] for each in ranks for rank in each if rank in by_rank]
        if len(there) > 1:
            yield (names[key], len(there), ranks[0].step), tuple(there)


def _ranges(stretches: Any) -> list[range]:
    """The ranks of an event; empty if they are not what a process writes."""
    try:
        found = [range(first, first + step * count, step) for first, step, count in stretches]
    except (TypeError, ValueError):
        return []
    return found if sum(map(len, found)) <= _MOST_RANKS else []


def parts(run: Run, members: Sequence[Process]) -> list[frozenset[int]]:
    """Sets of processes that may have one part of a job, and the others another one.

    Those with the same place in each process group of a kind, as those of a stage have; and those
    that meet each other, but none of the others.
    """
    found: dict[frozenset[int], None] = {}
    for of_kind in process_groups(members).values():
        if len({number for each in of_kind for number in each}) == sum(map(len, of_kind)):
            found |= dict.fromkeys(map(frozenset, zip(*of_kind, strict=True)))
    apart = _meeting(members)
    if len(apart) > 1:
        found |= dict.fromkeys(apart)
    return [each for each in found if 1 < len(each) < len(members)]


def by_calls(run: Run, place: int, ranks: Sequence[Sequence[Process]]) -> list[frozenset[int]]:
    """The processes of ranks that make as many calls at a place, set by set; empty if all do.

    Also if the number changes from step to step, as where ranks run freely.
    """
    members = list(chain.from_iterable(ranks))
    calls = of_ranks(run.matrix("calls", place, members), ranks)[run.usual].round()
    usually = np.median(calls, axis=0)
    counts = np.unique(usually)
    if len(counts) < 2 or (calls == usually).mean() < _STEADY:
        return []
    return [
        frozenset(process.number for column in np.flatnonzero(usually == count).tolist()
                  for process in ranks[column])
        for count in counts
    ]  # fmt: skip


def _meeting(members: Sequence[Process]) -> list[frozenset[int]]:
    """The processes that meet each other, directly or by others, set by set."""
    links = [each.ledger.links for each in members]
    keys = [np.unique(each["key"][each["role"] == MEETS]) for each in links]
    if not any(map(len, keys)):
        return []
    column = np.repeat(np.arange(len(members)), [len(each) for each in keys])
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
    numbers = np.array([each.number for each in members])
    return [frozenset(numbers[label == each].tolist()) for each in np.unique(label)]

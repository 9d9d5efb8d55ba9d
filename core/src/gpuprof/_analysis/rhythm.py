"""Steps that nobody marked, found in the driver's calls: a loop repeats them.

A driver that calls sample, train and sync in turn has a step for each round of the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TypeVar

import attrs

from gpuprof._analysis.run import Process, Run, Step
from gpuprof._artifacts.ledger import RELEASES, WAITS

Token = TypeVar("Token")

_LEAST_ROUNDS = 8
_LONGEST = 64
"""Calls in a round."""
_MOST_CALLS = 20_000
_COVERED = 0.8
"""Share of the driver's calls that the rounds must contain."""


@attrs.frozen
class Rounds:
    """Where a sequence repeats itself.

    Args:
        first: the position at which the first round begins.
        length: of a round.
        count: how many rounds there are.
    """

    first: int
    length: int
    count: int


def rounds(tokens: Sequence[Token]) -> Rounds | None:
    """The shortest round that nearly all of a sequence repeats; ``None`` if there is none.

    >>> rounds("xy" + "abc" * 9 + "z")
    Rounds(first=2, length=3, count=9)
    >>> print(rounds("abcdefghijklmnopqrstuvwxyz"))
    None
    """
    for length in range(1, min(_LONGEST, len(tokens) // _LEAST_ROUNDS) + 1):
        alike = [tokens[at] == tokens[at - length] for at in range(length, len(tokens))]
        longest, first, at = 0, 0, 0
        for same, part in groupby(alike):
            size = len(list(part))
            if same and size > longest:
                longest, first = size, at
            at += size
        repeated = longest + length
        if repeated >= _COVERED * len(tokens) and repeated // length >= _LEAST_ROUNDS:
            return Rounds(first, length, repeated // length)
    return None


def find_steps(run: Run, driver: Process) -> tuple[list[Step], str]:
    """The rounds of a driver's calls as steps, from 0, and the methods that each calls.

    Empty if its calls do not repeat.

    A round begins where the one before it ended, so the first has no known beginning and is left
    out. Calls of the same methods in a row, as in a loop that polls, count as one if that is what
    it takes.
    """
    calls = _calls(run, driver)
    if len(calls) > _MOST_CALLS:
        return [], ""
    for sequence in (calls, [list(part)[-1] for _, part in groupby(calls, lambda call: call[1])]):
        found = rounds([methods for _, methods in sequence])
        if found is not None:
            ends = [end for end, _ in sequence]
            names = {
                name: None
                for _, methods in sequence[found.first :][: found.length]
                for _, name in sorted(methods)
            }
            last = [found.first + found.length * (n + 1) - 1 for n in range(found.count)]
            steps = [
                Step(number, ends[begin], ends[end])
                for number, (begin, end) in enumerate(pairwise(last))
            ]
            return steps, ", ".join(names)
    return [], ""


def _calls(run: Run, driver: Process) -> list[tuple[int, frozenset[tuple[str, str]]]]:
    """When each of the driver's waits ended, and the methods that it waited for, by time."""
    released = {
        key: (process.group, process.ledger.places[place].key)
        for process in run.processes
        if process is not driver
        for key, place in _links(process, RELEASES, "key", "place")
    }
    waited: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for key, start, end in _links(driver, WAITS, "key", "start", "end"):
        if key in released:
            waited.setdefault((end, start), set()).add(released[key])
    offset = driver.ledger.offset
    return [(end + offset, frozenset(methods)) for (end, _), methods in sorted(waited.items())]


def _links(process: Process, role: int, *names: str) -> list[tuple[int, ...]]:
    rows = process.ledger.links
    rows = rows[rows["role"] == role]
    return list(zip(*(rows[name].tolist() for name in names), strict=True))

"""The scopes of all workers in one step, as many as a picture can show."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.path import Stretch
from gpuprof._analysis.run import Process, Run

Integers = NDArray[np.int64]

MOST_ROWS = 48
"""Of a step."""
MOST_SPANS = 12_000
"""Of a step; the longest of each row are kept."""
_FEWEST_SPANS = 40
"""Of a row that may be kept, however many rows there are."""
_MOST_TRACKS = 4
"""Of a process; those with the most time are kept."""
_LEAST_TRACK = 0.01
"""Of a step, what a further thread or task must take to have a row."""


@attrs.frozen
class Row:
    """What one thread or task of a process did in a step.

    Args:
        process: a position in `Run.processes`.
        track: the thread's name; empty if the process has one only.
        spans: place, depth, and start and length in nanoseconds from the step's beginning, cut at
            its edges.
        folds: the same of calls that are known only together, with how many there were and the
            nanoseconds they took.
        left: how many shorter spans are left out.
    """

    process: int
    track: str
    spans: list[tuple[int, int, int, int]]
    folds: list[tuple[int, int, int, int, int, int]]
    left: int


def rows(run: Run, step: int, path: Sequence[Stretch]) -> list[Row]:
    """The rows of a step: the driver, then each group's workers.

    Of more processes than a picture can show, first those on the critical path, then of each group
    the ones that worked most and least.

    Args:
        step: a position in `Run.steps`.
        path: its critical path.
    """
    begin, end = run.steps[step].start, run.steps[step].end
    shown = _shown(run, step, path)
    most = max(_FEWEST_SPANS, MOST_SPANS // max(1, len(shown)))
    return [row for process in shown for row in _rows(run, process, begin, end, most)]


def _shown(run: Run, step: int, path: Sequence[Stretch]) -> list[Process]:
    order = [run.driver] if run.driver is not None else []
    order += [process.number for members in run.groups.values() for process in members]
    if len(order) > MOST_ROWS:
        on_path: dict[int, int] = {}
        for part in path:
            on_path[part.process] = on_path.get(part.process, 0) + part.duration
        wanted = dict.fromkeys(order[:1] if run.driver is not None else [])
        wanted.update(dict.fromkeys(sorted(on_path, key=lambda number: -on_path[number])))
        for_each = max(2, (MOST_ROWS - len(wanted)) // max(1, len(run.groups)))
        for members in run.groups.values():
            ranked = np.argsort(-run.work(members)[step], kind="stable").tolist()
            ends = [*ranked[: (for_each + 1) // 2], *ranked[len(ranked) - for_each // 2 :]]
            wanted.update(dict.fromkeys(members[position].number for position in ends))
        kept = set(list(wanted)[:MOST_ROWS])
        order = [number for number in order if number in kept]
        order.sort(key=lambda number: number not in on_path)
    return [run.processes[number] for number in order]


def _rows(run: Run, process: Process, begin: int, end: int, most: int) -> list[Row]:
    ledger = process.ledger
    low, high = begin - ledger.offset, end - ledger.offset
    spans = ledger.spans[(ledger.spans["end"] > low) & (ledger.spans["start"] < high)]
    folds = ledger.folds[(ledger.folds["end"] > low) & (ledger.folds["start"] < high)]
    tracks = np.concatenate([spans["track"], folds["track"]])
    if not len(tracks):
        return [Row(process.number, "", [], [], 0)]
    depths = np.array([place.depth for place in run.places] or [0], np.int64)
    times = np.concatenate([spans["end"] - spans["start"], folds["busy"]])
    covered = np.bincount(tracks, times)
    ranked = sorted(np.unique(tracks).tolist(), key=lambda track: -covered[track])
    least = _LEAST_TRACK * (end - begin)
    found = ranked[:1]
    found += [track for track in ranked[1:_MOST_TRACKS] if covered[track] >= least]
    made = []
    most = max(_FEWEST_SPANS, most // len(found))
    hidden = int(np.isin(tracks, ranked[len(found) :]).sum())
    for track in found:
        own = np.sort(spans[spans["track"] == track], order=["start", "place"])
        mine = _cut(process, depths, own, low, high)
        sums = np.sort(folds[folds["track"] == track], order="start")
        folded = _cut(process, depths, sums, low, high)
        lengths = np.concatenate([mine[3], folded[3]])
        both = np.sort(np.argsort(-lengths, kind="stable")[:most])
        kept, longest = both[both < len(own)], both[both >= len(own)] - len(own)
        made.append(
            Row(
                process.number,
                ledger.tracks[track].name if len(found) > 1 else "",
                list(zip(*(column[kept].tolist() for column in mine), strict=True)),
                list(
                    zip(
                        *(column[longest].tolist() for column in folded),
                        sums["count"][longest].tolist(),
                        sums["busy"][longest].tolist(),
                        strict=True,
                    )
                ),
                len(mine[0]) + len(sums) - len(kept) - len(longest) + hidden,
            )
        )
        hidden = 0
    return made


def _cut(
    process: Process, depths: Integers, found: NDArray[np.void], low: int, high: int
) -> tuple[Integers, Integers, Integers, Integers]:
    """Place, depth, start and length of spans or folds."""
    place = process.places[found["place"]]
    start = np.maximum(found["start"], low) - low
    length = np.minimum(found["end"], high) - low - start
    return place, depths[place], start, length

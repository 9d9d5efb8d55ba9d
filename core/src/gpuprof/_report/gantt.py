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
"""The most rows of a step."""
MOST_SPANS = 12_000
"""The most spans of a step; the longest of each row are kept."""
_FEWEST_SPANS = 40
"""The number of spans that each row may keep, even if there are many rows."""
_MOST_TRACKS = 4
"""The most threads and tasks of a process; those with the most time are kept."""
_LEAST_TRACK = 0.01
"""Share of a step that a further thread or task must take to get a row."""


@attrs.frozen
class Row:
    """What one thread or task of a process did in a step.

    Args:
        process: a position in `Run.processes`.
        track: the name of the thread or task; empty if the process has only one row.
        spans: the place, depth, start and length of each span. Times are nanoseconds from the
            step's beginning; spans are cut at the step's edges.
        folds: the same for groups of calls of which only totals are known, then the number of calls
            and the nanoseconds that they took.
        left: the number of shorter spans that are left out.
    """

    process: int
    track: str
    spans: list[tuple[int, int, int, int]]
    folds: list[tuple[int, int, int, int, int, int]]
    left: int


def rows(run: Run, step: int, path: Sequence[Stretch]) -> list[Row]:
    """The rows of a step: the driver, then each group's workers.

    If there are too many processes, processes on the critical path come first, then the processes
    of each group that worked most and least.
    """
    begin, end = run.steps[step].start, run.steps[step].end
    processes = _shown(run, step, path)
    most = max(_FEWEST_SPANS, MOST_SPANS // max(1, len(processes)))
    return [row for process in processes for row in _rows(run, process, begin, end, most)]


def _shown(run: Run, step: int, path: Sequence[Stretch]) -> list[Process]:
    order = [run.driver] if run.driver is not None else []
    order += [process.number for members in run.groups.values() for process in members]
    if len(order) > MOST_ROWS:
        on_path: dict[int, int] = {}
        for part in path:
            on_path[part.process] = on_path.get(part.process, 0) + part.duration
        choice = dict.fromkeys(order[:1] if run.driver is not None else [])
        choice.update(dict.fromkeys(sorted(on_path, key=lambda number: -on_path[number])))
        for_each = max(2, (MOST_ROWS - len(choice)) // max(1, len(run.groups)))
        for members in run.groups.values():
            by_work = np.argsort(-run.work(members)[step], kind="stable").tolist()
            ends = [*by_work[: (for_each + 1) // 2], *by_work[len(by_work) - for_each // 2 :]]
            choice.update(dict.fromkeys(members[position].number for position in ends))
        numbers = set(list(choice)[:MOST_ROWS])
        order = [number for number in order if number in numbers]
        order.sort(key=lambda number: number not in on_path)
    return [run.processes[number] for number in order]


def _rows(run: Run, process: Process, begin: int, end: int, most: int) -> list[Row]:
    ledger = process.ledger
    low, high = begin - ledger.offset, end - ledger.offset
    spans = ledger.spans[(ledger.spans["end"] > low) & (ledger.spans["start"] < high)]
    folds = ledger.folds[(ledger.folds["end"] > low) & (ledger.folds["start"] < high)]
    tracks = np.concatenate([spans["track"], folds["track"]])
    if not len(tracks):
        return [Row(process=process.number, track="", spans=[], folds=[], left=0)]
    depths = np.array([place.depth for place in run.places] or [0], np.int64)
    times = np.concatenate([spans["end"] - spans["start"], folds["busy"]])
    durations = np.bincount(tracks, times)
    by_duration = sorted(np.unique(tracks).tolist(), key=lambda track: -durations[track])
    least = _LEAST_TRACK * (end - begin)
    busiest = by_duration[:1]
    busiest += [track for track in by_duration[1:_MOST_TRACKS] if durations[track] >= least]
    rows = []
    most = max(_FEWEST_SPANS, most // len(busiest))
    omissions = int(np.isin(tracks, by_duration[len(busiest) :]).sum())
    for track in busiest:
        own = np.sort(spans[spans["track"] == track], order=["start", "place"])
        cut_spans = _cut(process, depths, own, low, high)
        sums = np.sort(folds[folds["track"] == track], order="start")
        cut_folds = _cut(process, depths, sums, low, high)
        lengths = np.concatenate([cut_spans[3], cut_folds[3]])
        both = np.sort(np.argsort(-lengths, kind="stable")[:most])
        span_rows, fold_rows = both[both < len(own)], both[both >= len(own)] - len(own)
        rows.append(
            Row(
                process=process.number,
                track=ledger.tracks[track].name if len(busiest) > 1 else "",
                spans=list(zip(*(column[span_rows].tolist() for column in cut_spans), strict=True)),
                folds=list(
                    zip(
                        *(column[fold_rows].tolist() for column in cut_folds),
                        sums["count"][fold_rows].tolist(),
                        sums["busy"][fold_rows].tolist(),
                        strict=True,
                    )
                ),
                left=len(cut_spans[0]) + len(sums) - len(span_rows) - len(fold_rows) + omissions,
            )
        )
        omissions = 0
    return rows


def _cut(
    process: Process, depths: Integers, records: NDArray[np.void], low: int, high: int
) -> tuple[Integers, Integers, Integers, Integers]:
    """The place, depth, start and length of spans or folds, cut to the interval `low` to `high`."""
    place = process.places[records["place"]]
    start = np.maximum(records["start"], low) - low
    length = np.minimum(records["end"], high) - low - start
    return place, depths[place], start, length

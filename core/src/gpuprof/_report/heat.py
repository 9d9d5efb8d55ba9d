"""Each worker's time in each place, and how far that is from its group's median."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.run import Run, by_name

Floats = NDArray[np.float64]

MOST_WORKERS = 64
"""The most workers of a group to show one by one; a larger group has a row for each node."""
MOST_ROWS = 2000
MOST_PLACES = 40
_LEAST = 0.001
"""Share of a step that a place must take, or deviate by, to be shown."""


@attrs.frozen
class HeatRow:
    """The row of a worker or, in a large group, of a node.

    Args:
        seconds: the time per step in each place, without the scopes inside it. For a node, the time
            of the worker there that is farthest from the group's median.
        whose: for a node, the name of that worker for each place; empty for a worker.
    """

    name: str
    node: str
    workers: int
    seconds: list[float]
    whose: list[str]


@attrs.frozen
class HeatMap:
    """The map of a group.

    Args:
        places: positions in `Run.places` of the places with the most time and the largest
            deviations.
        left_places: the number of other places, which are left out.
        median: the median of all workers' seconds per step in each place.
        left_rows: the number of rows with smaller deviations, which are left out.
    """

    group: str
    places: list[int]
    left_places: int
    median: list[float]
    rows: list[HeatRow]
    left_rows: int
    folded: bool


def heat_maps(run: Run) -> list[HeatMap]:
    """A map for each group of at least two workers, with the means over the steps that count."""
    maps = []
    for group in run.groups:
        members = by_name(run.groups[group])
        if len(members) > 1 and run.usual:
            maps.append(_heat_map(run, group, list(members)))
    return maps


def _heat_map(run: Run, group: str, names: list[str]) -> HeatMap:
    ranks = list(by_name(run.groups[group]).values())
    step = float(np.median([run.steps[at].duration for at in run.usual])) / 1e9
    flat = [process for rank in ranks for process in rank]
    bounds = np.cumsum([0, *(len(rank) for rank in ranks)])[:-1]
    places = np.unique(run.sums["place"][np.isin(run.sums["process"], [p.number for p in flat])])
    columns = []
    for place in places.tolist():
        own = run.matrix("own", place, flat)[run.usual].mean(axis=0)
        columns.append(np.add.reduceat(own, bounds) / 1e9)
    seconds = np.array(columns).reshape(len(places), len(ranks))
    median = np.median(seconds, axis=1) if len(places) else np.zeros(0)
    away = seconds - median[:, None]
    farthest, mean = np.abs(away).max(axis=1, initial=0.0), seconds.mean(axis=1)
    most = np.argsort(-farthest - mean / 4, kind="stable")[:MOST_PLACES]
    shown_places = np.sort(most[np.maximum(farthest, mean)[most] >= _LEAST * step])
    seconds, away = seconds[shown_places].T, away[shown_places].T
    nodes = [rank[0].node for rank in ranks]
    is_by_node = len(ranks) > MOST_WORKERS and len(set(nodes)) > 1
    columns_of: dict[str, list[int]] = {}
    for column, (name, node) in enumerate(zip(names, nodes, strict=True)):
        columns_of.setdefault(node if is_by_node else name, []).append(column)
    rows, deviations = [], []
    every = np.arange(len(shown_places))
    for name, members in columns_of.items():
        worst = np.array(members)[np.abs(away[members]).argmax(axis=0)]
        deviations.append(float(np.abs(away[worst, every]).max(initial=0.0)))
        rows.append(
            HeatRow(
                name=name,
                node=nodes[members[0]],
                workers=len(members),
                seconds=[_short(value) for value in seconds[worst, every].tolist()],
                whose=[names[value] for value in worst.tolist()] if is_by_node else [],
            )
        )
    row_numbers = list(range(len(rows)))
    if len(rows) > MOST_ROWS:
        row_numbers = sorted(np.argsort(-np.array(deviations), kind="stable")[:MOST_ROWS].tolist())
    return HeatMap(
        group=group,
        places=places[shown_places].tolist(),
        left_places=len(places) - len(shown_places),
        median=[_short(value) for value in median[shown_places].tolist()],
        rows=[rows[row] for row in row_numbers],
        left_rows=len(rows) - len(row_numbers),
        folded=is_by_node,
    )


def _short(seconds: float) -> float:
    """A number rounded to the digits that a colour needs."""
    return float(f"{seconds:.4g}")

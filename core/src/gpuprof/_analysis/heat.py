"""Each worker's time in each place, and how far that is from its group's median."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis.run import Run, by_name

Floats = NDArray[np.float64]

MOST_WORKERS = 64
"""Of a group, beyond which its nodes are shown."""
MOST_ROWS = 2000
MOST_PLACES = 40
_LEAST = 0.001
"""Of a step, what a place must take or deviate to be shown."""


@attrs.frozen
class HeatRow:
    """A worker, or of a large group the workers of a node.

    Args:
        name: of the worker or node.
        workers: how many.
        seconds: a step in each place, and in no scope inside it; of a node, of the worker there
            that is farthest from the group's median.
        whose: which worker that is; empty where the row is a worker.
    """

    name: str
    node: str
    workers: int
    seconds: list[float]
    whose: list[str]


@attrs.frozen
class HeatMap:
    """A group.

    Args:
        places: positions in `Run.places`; those with the most time and the largest deviations.
        left_places: how many others there are.
        median: of all workers, seconds a step in each place.
        rows: by rank or by node.
        left_rows: how many rows with smaller deviations are left out.
        folded: whether the rows are nodes.
    """

    group: str
    places: list[int]
    left_places: int
    median: list[float]
    rows: list[HeatRow]
    left_rows: int
    folded: bool


def heat_maps(run: Run) -> list[HeatMap]:
    """A map for each group of at least two workers. Of the steps that count, the mean."""
    made = []
    for group in run.groups:
        members = by_name(run.groups[group])
        if len(members) > 1 and run.usual:
            made.append(_heat_map(run, group, list(members)))
    return made


def _heat_map(run: Run, group: str, names: list[str]) -> HeatMap:
    ranks = list(by_name(run.groups[group]).values())
    step = float(np.median([run.steps[at].duration for at in run.usual])) / 1e9
    flat = [process for rank in ranks for process in rank]
    bounds = np.cumsum([0, *(len(rank) for rank in ranks)])[:-1]
    there = np.unique(run.sums["place"][np.isin(run.sums["process"], [p.number for p in flat])])
    columns = []
    for place in there.tolist():
        own = run.matrix("own", place, flat)[run.usual].mean(axis=0)
        columns.append(np.add.reduceat(own, bounds) / 1e9)
    found = np.array(columns).reshape(len(there), len(ranks))
    median = np.median(found, axis=1) if len(there) else np.zeros(0)
    away = found - median[:, None]
    farthest, mean = np.abs(away).max(axis=1, initial=0.0), found.mean(axis=1)
    most = np.argsort(-farthest - mean / 4, kind="stable")[:MOST_PLACES]
    kept = np.sort(most[np.maximum(farthest, mean)[most] >= _LEAST * step])
    found, away = found[kept].T, away[kept].T
    nodes = [rank[0].node for rank in ranks]
    folded = len(ranks) > MOST_WORKERS and len(set(nodes)) > 1
    columns_of: dict[str, list[int]] = {}
    for column, (name, node) in enumerate(zip(names, nodes, strict=True)):
        columns_of.setdefault(node if folded else name, []).append(column)
    rows, deviations = [], []
    every = np.arange(len(kept))
    for name, members in columns_of.items():
        worst = np.array(members)[np.abs(away[members]).argmax(axis=0)]
        deviations.append(float(np.abs(away[worst, every]).max(initial=0.0)))
        rows.append(
            HeatRow(
                name,
                nodes[members[0]],
                len(members),
                [_short(each) for each in found[worst, every].tolist()],
                [names[each] for each in worst.tolist()] if folded else [],
            )
        )
    shown = list(range(len(rows)))
    if len(rows) > MOST_ROWS:
        shown = sorted(np.argsort(-np.array(deviations), kind="stable")[:MOST_ROWS].tolist())
    return HeatMap(
        group,
        there[kept].tolist(),
        len(there) - len(kept),
        [_short(each) for each in median[kept].tolist()],
        [rows[row] for row in shown],
        len(rows) - len(shown),
        folded,
    )


def _short(seconds: float) -> float:
    """As many digits as a colour needs."""
    return float(f"{seconds:.4g}")


def sizes(run: Run) -> dict[tuple[str, int], float]:
    """The mean of the bytes that a worker handles in a place in a step, if it notes any there.

    Of the steps that count. By group and place, as `spreads`.
    """
    made: dict[tuple[str, int], list[float]] = {}
    for process in run.processes:
        rows, (starts, ends) = process.ledger.sizes, run.step_edges(process)
        times = rows["time"] + process.ledger.offset
        step = np.searchsorted(ends, times, "right")
        inside = np.isin(step, run.usual)
        inside[inside] = times[inside] >= starts[step[inside]]
        places = process.places[rows["place"]]
        for place in np.unique(places[inside]).tolist():
            total = float(rows["bytes"][inside & (places == place)].sum())
            made.setdefault((process.group, place), []).append(total / len(run.usual))
    return {key: float(np.mean(of_each)) for key, of_each in made.items()}


def spreads(run: Run) -> dict[tuple[str, int], tuple[float, float]]:
    """The median and the 95th percentile of a worker's seconds in a place in a step.

    Of the steps that count, and of the workers and steps with any time there.

    Returns:
        Both, by group and place, a position in `Run.places`. The driver is a group.
    """
    groups = {group: [p.number for p in processes] for group, processes in run.groups.items()}
    for process in run.processes:
        if process.role == "driver":
            groups.setdefault(process.group, []).append(process.number)
    counts = np.zeros(len(run.steps), bool)
    counts[run.usual] = True
    group_of = np.full(len(run.processes), -1)
    for number, processes in enumerate(groups.values()):
        group_of[processes] = number
    # of all rows only what is needed: a large run has millions of them
    group = group_of[run.sums["process"]]
    rows = np.flatnonzero(counts[run.sums["step"]] & (run.sums["busy"] > 0) & (group >= 0))
    codes = group[rows] * len(run.places) + run.sums["place"][rows]
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    names, made = list(groups), {}
    parts = np.split(run.sums["busy"][rows[order]], starts[1:])
    for code, busy in zip(found.tolist(), parts, strict=False):
        number, place = divmod(code, len(run.places))
        middle, high = np.percentile(busy, [50, 95]) / 1e9
        made[names[number], place] = float(middle), float(high)
    return made

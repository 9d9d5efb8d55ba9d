"""What each scope of a group takes in a step, and how many bytes it handles there."""

from __future__ import annotations

import numpy as np

from gpuprof._analysis.run import Run


def sizes(run: Run) -> dict[tuple[str, int], float]:
    """The mean of the bytes that a worker handles in a place in a step, if it notes any there.

    Of the steps that count. By group and place, as `spreads`.
    """
    totals: dict[tuple[str, int], list[float]] = {}
    for process in run.processes:
        rows, (starts, ends) = process.ledger.sizes, run.step_edges(process)
        times = rows["time"] + process.ledger.offset
        step = np.searchsorted(ends, times, "right")
        inside = np.isin(step, run.usual)
        inside[inside] = times[inside] >= starts[step[inside]]
        places = process.places[rows["place"]]
        for place in np.unique(places[inside]).tolist():
            total = float(rows["bytes"][inside & (places == place)].sum())
            totals.setdefault((process.group, place), []).append(total / len(run.usual))
    return {key: float(np.mean(of_each)) for key, of_each in totals.items()}


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
    unique_codes, starts = np.unique(codes[order], return_index=True)
    names, figures = list(groups), {}
    parts = np.split(run.sums["busy"][rows[order]], starts[1:])
    for code, busy in zip(unique_codes.tolist(), parts, strict=False):
        number, place = divmod(code, len(run.places))
        middle, high = np.percentile(busy, [50, 95]) / 1e9
        figures[names[number], place] = float(middle), float(high)
    return figures

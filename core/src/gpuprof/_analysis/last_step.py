"""What the ledgers tell about the last step of a running job, as numbers and names."""

from __future__ import annotations

import attrs
import numpy as np

from gpuprof._analysis.explain import Explainer
from gpuprof._analysis.live import written
from gpuprof._analysis.loop import EXPLAINED
from gpuprof._analysis.run import Run

_STEPS = 8
"""The critical path is that of the last step, but places that are not explained are known from so
many steps."""


def of_last_step(run: Run) -> dict[str, float | str]:
    """The metrics of the last step that counts; docs/while-it-runs.md describes them.

    Empty before there is one.
    """
    positions = written(run)[-_STEPS:]
    if not positions:
        return {}
    steps = list(run.steps)
    for position in set(run.usual) - set(positions):
        run.steps[position] = attrs.evolve(run.steps[position], warm_up=True)
    last = positions[-1]
    metrics: dict[str, float | str] = {"recorded_step": run.steps[last].number}
    path = Explainer(run).path(last, "last") if len(run.untimed) < len(run.processes) else None
    if path is not None and path.explained >= EXPLAINED:
        shares: dict[str, float] = {}
        for part in path.parts:
            shares[part.worker] = shares.get(part.worker, 0.0) + part.share
        metrics["bound_by"] = max(shares, key=shares.__getitem__)
        metrics["bound_share"] = max(shares.values())
    run.steps[:] = steps
    return metrics | _of_groups(run, last)


def _of_groups(run: Run, position: int) -> dict[str, float | str]:
    """Who waits in a step, and who works longer than the others of its group."""
    waits: dict[str, float] = {}
    ratios: dict[str, float] = {}
    lost = whole = 0.0
    for group, members in run.groups.items():
        numbers = [process.number for process in members]
        work, length = run.work(members)[position], run.lengths[position, numbers]
        # on Ray, a worker that nobody calls waits, too
        busy = length if run.driver is not None else run.tracked[position, numbers]
        idle = float((busy - work).clip(0).sum())
        if not work.any() or not length.any():
            continue
        lost, whole = lost + idle, whole + float(length.sum())
        waits[group] = idle / float(length.sum())
        for column, process in enumerate(members):
            others = float(np.median(np.delete(work, column))) if len(members) > 1 else 0.0
            if others > 0:
                ratios[process.name] = float(work[column]) / others
    metrics: dict[str, float | str] = {}
    if waits:
        group = max(waits, key=waits.__getitem__)
        metrics |= {"lost_share": lost / whole, "waits": group, "waits_share": waits[group]}
    if ratios:
        worker = max(ratios, key=ratios.__getitem__)
        metrics |= {"slowest_rank": worker, "slowest_ratio": ratios[worker]}
    return metrics

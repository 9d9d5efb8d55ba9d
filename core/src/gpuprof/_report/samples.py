"""The picture of one step's samples: how long each took, and when their workers became idle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpuprof._analysis.run import Run
from gpuprof._analysis.samples import tail, working

SHARES = (0.5, 0.9, 0.97, 1.0)
"""The picture marks when these shares of the samples were done."""
_MOST_ROWS = 40
_MOST_WORKERS = 24
_MOST_PHASES = 60
"""The most phases of a sample that are drawn; the longest are kept."""
_MOST_STRETCHES = 200


def picture(run: Run, at: int) -> dict[str, Any] | None:
    """What the page shows of the samples of one step; ``None`` if nobody worked on any."""
    step, samples = run.steps[at], run.samples
    last = tail(samples, step.start, step.end)
    if not len(last.sample):
        return None
    rows = np.flatnonzero((samples.start < step.end) & (samples.end > step.start))
    starts = np.maximum(samples.start[rows], step.start) - step.start
    sizes = np.minimum(samples.end[rows], step.end) - step.start - starts
    tokens = samples.notes.get("tokens")
    drawn = []
    for number in last.sample[:_MOST_ROWS].tolist():
        own = np.flatnonzero(samples.sample[rows] == number)
        longest = np.sort(own[np.argsort(-sizes[own], kind="stable")][:_MOST_PHASES])
        noted = 0.0 if tokens is None else float(np.nansum(tokens[rows[own]]))
        drawn.append(
            {
                "id": samples.ids[number],
                "tokens": noted,
                "phases": [
                    value
                    for phase in longest.tolist()
                    for value in (
                        int(samples.phase[rows[phase]]),
                        int(samples.process[rows[phase]]),
                        int(starts[phase]),
                        int(sizes[phase]),
                        int(samples.ended[rows[phase]]),
                    )
                ],
            }
        )
    is_work = working(samples)[rows]
    processes = samples.process[rows][is_work]
    workers = []
    for process in np.unique(processes).tolist():
        own = np.flatnonzero(is_work & (samples.process[rows] == process))
        stretches = _together(starts[own].tolist(), (starts + sizes)[own].tolist())
        workers.append((stretches[-1][1], process, stretches))
    workers.sort(key=lambda worker: -worker[0])
    return {
        "step": step.number,
        "seconds": step.duration / 1e9,
        "count": int(last.weight.sum()),
        "shares": SHARES,
        "done": [last.done(share) - step.start for share in SHARES],
        "rows": drawn,
        "left": len(last.sample) - len(drawn),
        "workers": [
            [process, [value for pair in stretches[:_MOST_STRETCHES] for value in pair]]
            for _, process, stretches in workers[:_MOST_WORKERS]
        ],
        "workers_left": max(0, len(workers) - _MOST_WORKERS),
    }


def _together(starts: Iterable[int], ends: Iterable[int]) -> list[tuple[int, int]]:
    """The times in which at least one of several intervals lasts.

    >>> _together([5, 0, 2], [9, 3, 4])
    [(0, 4), (5, 9)]
    """
    stretches: list[tuple[int, int]] = []
    for start, end in sorted(zip(starts, ends, strict=True)):
        if stretches and start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], end)
        else:
            stretches.append((start, end))
    return stretches

"""A run that is larger than any machine here could hold: 10,000 workers with 200 places each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gpuprof._artifacts import ledger as reader

from support.made_ledgers import RELEASES, WAITS, MadeLedger

STEP = 1_000_000_000
ON_A_NODE = 8


def write(directory: Path, workers: int = 10_000, places: int = 200, steps: int = 3) -> Path:
    """Write the ledgers of a driver and its workers, and the timing tree of one of them.

    The driver waits for all workers in each step. Worker 1234 takes the longest, in its last place.
    """
    driver = MadeLedger(directory, "Runner", role="driver", clock="one")
    train, main = driver.place("train"), driver.track()
    slow = min(1234, workers - 1)
    length = STEP // 2 // places
    for step in range(steps):
        driver.step(step, step * STEP, (step + 1) * STEP - 1000)
        span = (train, main, step * STEP, (step + 1) * STEP - 2000)
        driver.spans([span])
        driver.links([(*span, f"ray:{step}-{slow}", WAITS)])
    driver.write()
    random = np.random.default_rng(5)
    first = MadeLedger(directory, "Actor", 0, "node-0")
    head = len(first.content)
    work, main = first.place("work"), first.track()
    inner = [first.place("work", f"layer-{number}") for number in range(places - 1)]
    known = first.content[head:]
    folds = np.zeros((steps, places - 1), np.dtype(reader.FOLD))
    folds["place"], folds["track"], folds["count"] = inner, main, 3
    folds["start"] = np.arange(steps)[:, None] * STEP + np.arange(places - 1) * length
    folds["end"] = folds["start"] + length
    for rank in range(workers):
        made = MadeLedger(directory, "Actor", rank, f"node-{rank // ON_A_NODE}", clock="one")
        made.content += known
        folds["busy"] = length * (0.8 + 0.1 * random.random(folds.shape))
        end = STEP // 2
        if rank == slow:
            folds["busy"][:, -1] = folds["end"][:, -1] - folds["start"][:, -1] + STEP // 4
            end += STEP // 4
        spans = [(work, main, step * STEP, step * STEP + end) for step in range(steps)]
        made.spans(spans)
        made.fold_rows(folds)
        made.links((*span, f"ray:{step}-{rank}", RELEASES) for step, span in enumerate(spans))
        made.write()
    return directory

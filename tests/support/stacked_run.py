"""A run with sampled stacks."""

from __future__ import annotations

from pathlib import Path

from support.made_stacks import Frame, write_stacks
from support.simulated_run import SimulatedLedger

MS = 1_000_000
MAIN: Frame = ("<module>", "__main__", "/job/train.py", 12)
LOAD: Frame = ("load", "__main__", "/job/train.py", 20)
LOADS: Frame = ("loads", "json", "/usr/lib/python3.11/json/__init__.py", 346)
CROP: Frame = ("crop", "__main__", "/job/train.py", 30)


def write(directory: Path) -> Path:
    """Write a run: four ranks crop for 40 ms a step, and one reads JSON for 30 ms, too."""
    for rank in range(4):
        ledger = SimulatedLedger(f"A-{rank}")
        samples = []
        for step in range(60):
            begin, long = step * 100 * MS, (70 if rank == 2 else 40) * MS
            ledger.span("load", begin, begin + long)
            ledger.step(step, begin, begin + 90 * MS)
            crops = begin + 40 * MS
            samples.append(([MAIN, LOAD, CROP], 1, 1, 2, begin, crops))
            if rank == 2:
                samples.append(([MAIN, LOAD, LOADS], 1, 1, 2, crops, begin + long))
        write_stacks(ledger.write(directory), samples)
    return directory

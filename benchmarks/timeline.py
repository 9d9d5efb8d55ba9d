"""What `gpuprof timeline` takes: time and memory, on generated ledgers.

1,000 workers with 100 steps of 20 spans each: a timeline of ten steps in less than 30 s and 2 GB.
Ten million spans in one ledger are read in at most 3 s. All seconds are the CPU's: one thread does
the work, and the machine may be busy.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from gpuprof._artifacts import ledger
from support.made_ledgers import RELEASES, WAITS, MadeLedger
from tabulate import tabulate

WORKERS, STEPS, SPANS = 1000, 100, 20
STEP = 100_000_000
SHOWN = 10
LARGE = 10_000_000
BATCH = 100_000


def generate(directory: Path) -> None:
    """The ledgers of a run: a driver that waits for every worker, on nodes of eight workers."""
    driver = MadeLedger(directory, "Runner", role="driver")
    wait, main = driver.place("step", "wait"), driver.track()
    for step in range(STEPS):
        begin, end = step * STEP, (step + 1) * STEP - 1000
        driver.step(step, begin, end)
        waits = [(wait, main, begin + rank, end - WORKERS + rank) for rank in range(WORKERS)]
        driver.spans(waits)
        driver.links((*row, f"ray:{step}-{rank}", WAITS) for rank, row in enumerate(waits))
    driver.write()
    for rank in range(WORKERS):
        worker = MadeLedger(directory, "Actor", rank, f"node-{rank // 8}")
        train, main = worker.place("train"), worker.track()
        layers = [worker.place("train", f"layer-{number}") for number in range(SPANS - 1)]
        for step in range(STEPS):
            begin = step * STEP + 1000 * rank
            length = STEP // 2 // SPANS
            whole = (train, main, begin, begin + STEP // 2)
            inside = [
                (place, main, begin + number * length, begin + (number + 1) * length)
                for number, place in enumerate(layers)
            ]
            worker.spans([*inside, whole])
            worker.links([(*whole, f"ray:{step}-{rank}", RELEASES)])
        worker.write()


def generate_large(directory: Path) -> Path:
    """A ledger with ten million spans."""
    made = MadeLedger(directory)
    place, track = made.place("train"), made.track()
    rows = np.zeros(BATCH, np.dtype(ledger.SPAN))
    rows["place"], rows["track"] = place, track
    for batch in range(LARGE // BATCH):
        rows["start"] = np.arange(batch * BATCH, (batch + 1) * BATCH) * 1000
        rows["end"] = rows["start"] + 900
        made.spans(rows.tolist())
    return made.write()


def timeline(run: Path, *steps: str) -> tuple[float, float, float]:
    """Write a timeline: CPU seconds, GiB of memory, and the file's MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "gpuprof", "timeline", str(run), *steps]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (file,) = run.glob("*.gz")
    size = file.stat().st_size
    file.unlink()
    return taken, after.ru_maxrss / 2**20, size / 2**20


def main() -> int:
    """Measure, print, and compare with the goals."""
    global LARGE, WORKERS
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--spans", type=int, default=LARGE, help="in the large ledger")
    given = parser.parse_args()
    WORKERS, LARGE = given.workers, given.spans
    with tempfile.TemporaryDirectory() as folder:
        path = generate_large(Path(folder, "large"))
        began = time.process_time()
        found = ledger.read(path)
        reading = time.process_time() - began
        assert LARGE == len(found.spans)
        del found

        run = Path(folder, "run")
        generate(run)
        steps = ["--steps", f"{STEPS // 2}:{STEPS // 2 + SHOWN}"]
        taken, memory, size = timeline(run, *steps)
        taken_by_all, memory_of_all, size_of_all = timeline(run)
    workers = f"{WORKERS:,} workers x {STEPS} steps x {SPANS} spans"
    rows = [
        (f"{LARGE:,} spans of one ledger, read", f"{reading:.2f}", "3", "", "", ""),
        (f"{workers}: {SHOWN} steps", f"{taken:.1f}", "30", f"{memory:.2f}", "2", f"{size:.1f}"),
        (
            f"{workers}: all steps",
            f"{taken_by_all:.1f}",
            "",
            f"{memory_of_all:.2f}",
            "",
            f"{size_of_all:.1f}",
        ),
    ]
    print(tabulate(rows, ["what", "s", "goal", "GiB", "goal", "MiB"], disable_numparse=True))
    return int(reading > 3 or taken > 30 or memory > 2)


if __name__ == "__main__":
    sys.exit(main())

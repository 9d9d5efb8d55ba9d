"""``gpuprof explain`` of a large run: 1,000 workers, 100 steps, 20 spans each.

The ledgers are made here: a driver, a group whose ranks meet in an all-reduce in each step, one of
them slow. Explains them in a process of its own and prints its time and its memory. Fails if a goal
is missed, or if the slow rank is not named. The goal is of CPU time, in one thread, so that a busy
machine does not matter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
from support.simulated_run import SimulatedLedger
from tabulate import tabulate

GOALS = {1000: (10.0, 2**30), 4096: (60.0, 4 * 2**30)}
"""By workers, of 100 steps and 20 spans: seconds of CPU, and bytes."""
MS = 1_000_000
SLOW = 7
PROGRAM = """
import resource, sys
from gpuprof._report.explain import answer_of, as_json
sys.stdout.write(as_json(answer_of(sys.argv[1])))
used = resource.getrusage(resource.RUSAGE_SELF)
sys.stderr.write(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss * 1024}")
"""


def make(directory: Path, workers: int, steps: int, spans: int) -> int:
    """Write the ledgers. Returns how many spans they have."""
    random = np.random.default_rng(0)
    scopes = spans - 3  # beside the call, the scope around, and the all-reduce
    times = random.lognormal(0, 0.1, (steps, workers, scopes))
    times[:, SLOW, 3] *= 4  # the slowest of 999 others takes nearly as long with less
    lengths = (times * 2 * MS).astype(np.int64)
    begins = np.zeros(steps + 1, np.int64)
    for step in range(steps):
        begins[step + 1] = begins[step] + lengths[step].sum(axis=1).max() + 5 * MS
    around = ("Learner.train", "train")
    written = 0
    for rank in range(workers):
        ledger = SimulatedLedger(f"ActorGroup-{rank}", node=f"node-{rank // 8:03}")
        for step in range(steps):
            start = at = int(begins[step]) + MS
            for scope in range(scopes):
                end = at + int(lengths[step, rank, scope])
                ledger.span((*around, f"scope-{scope}"), at, end)
                at = end
            out = int(begins[step + 1]) - 3 * MS
            ledger.span(
                (*around, "all_reduce"), at, out, waits_for="barrier", meets=[f"dist:{step}"]
            )
            ledger.span(around, start, out)
            ledger.span(around[0], start, out + 1000, releases=[f"ray:{rank}:{step}"])
        written += len(ledger.spans)
        ledger.write(directory)
    driver = SimulatedLedger("Runner", "driver", node="node-000")
    for step in range(steps):
        begin, end = int(begins[step]), int(begins[step + 1]) - 2 * MS
        driver.step(step, begin, end)
        keys = [f"ray:{rank}:{step}" for rank in range(workers)]
        driver.span("ray.get", begin + MS // 2, end - 1000, waits_for="*", waits=keys)
    driver.write(directory)
    return written


def main() -> int:
    """Make the run, explain it, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--spans", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "run")
        spans = make(directory, given.workers, given.steps, given.spans)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(directory)],
            capture_output=True,
            text=True,
            check=True,
        )
        took = time.perf_counter() - began
    cpu, memory = map(float, done.stderr.split()[-2:])
    answer = json.loads(done.stdout)
    print(
        tabulate(
            [
                [
                    f"{given.workers:,}",
                    f"{spans:,}",
                    f"{took:.1f}",
                    f"{cpu:.1f}",
                    f"{memory / 2**30:.2f}",
                ]
            ],
            ["workers", "spans", "seconds", "of CPU", "GiB"],
            tablefmt="github",
            disable_numparse=True,
        )
    )
    named = [(each["worker"], each["scope"]) for each in answer["findings"]]
    seconds, size = next(
        (goal for most, goal in GOALS.items() if given.workers <= most), [*GOALS.values()][-1]
    )
    print(f"named: {named}; goals: {seconds:.0f} s of CPU, {size / 2**30:.0f} GiB")
    right = named == [(f"ActorGroup-{SLOW}", "scope-3")]
    return not (right and cpu <= seconds and memory <= size)


if __name__ == "__main__":
    sys.exit(main())

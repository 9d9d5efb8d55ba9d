"""How often does ``gpuprof diff`` fail for nothing, and how often does it find a slower scope?

Compares pairs of simulated runs, as real ledgers: equal but for chance, and with one scope of one
rank slower by twice the bound on that scope. Does the same with pairs of a small job that
`gpuprof run` starts. Fails if more than 5 % of the equal ones fail with a bound of 5 %, or fewer
than 95 % of the slower ones are found with their scope and rank.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpuprof._analysis.diff import Condition, Diff, diff
from gpuprof._analysis.summary import Summary, summary_of
from support.simulated_pair import SimulatedJob
from tabulate import tabulate

CORRELATIONS = (0.0, 0.3, 0.6, 0.9)
SPREADS = (0.01, 0.02, 0.03)
"""Standard deviations of equal runs: those of small Ray jobs were 1 to 2.5 %."""
FALSE, FOUND = 0.05, 0.95
WORKER, SCOPE = "ActorGroup-1", "actor/backward"
GPUPROF = (sys.executable, "-m", "gpuprof")
JOB = """
import hashlib, os, sys, time
import gpuprof

def work(milliseconds):
    hashlib.sha256(bytes(1 << 16)).digest()
    time.sleep(milliseconds / 1000)  # as for a device

slower = float(sys.argv[1]) if os.environ["RANK"] == "1" else 1.0
for step in range(int(sys.argv[2])):
    with gpuprof.step(step):
        with gpuprof.timer("forward"):
            work(20)
        with gpuprof.timer("backward"):
            work(40 * slower)
"""


def found(made: Diff, worker: str, scope: str) -> bool:
    """Whether the comparison fails because of this scope of this worker."""
    return any(
        (failure.worker, failure.scope) == (worker, scope)
        for check in made.checks
        for failure in check.failures
    )


def simulated(case: tuple[int, float, float, int, float]) -> tuple[bool, bool, bool]:
    """Compare one run with an equal one, and with a slower one.

    Returns:
        Whether the equal one fails with a bound of 5 %, or with the bound on the scope; and whether
        the slower one is found.
    """
    seed, correlation, spread, steps, bound = case
    with tempfile.TemporaryDirectory() as place:

        def run(number: int, slower: float = 1.0) -> Summary:
            job = SimulatedJob(
                1000 * seed + number,
                correlation,
                spread,
                slower={(WORKER, SCOPE): slower},
                steps=steps,
            )
            return summary_of(job.write(Path(place, str(number))))

        one = run(0)
        equal = diff([one], [run(1)], [Condition.parse("step > 5%")]).slower
        on_scope = Condition.parse(f"{SCOPE} > {bound:.0%}")
        scope = diff([one], [run(2)], [on_scope]).slower
        return equal, scope, found(diff([one], [run(3, 1 + 2 * bound)], [on_scope]), WORKER, SCOPE)


def rows(pairs: int, steps: int, bound: float) -> Iterator[tuple[float, float, int, int, int, int]]:
    """For each correlation and spread the failures for nothing and the findings."""
    kinds = list(itertools.product(CORRELATIONS, SPREADS))
    each = -(-pairs // len(kinds))
    cases = [
        (number * each + seed, correlation, spread, steps, bound)
        for number, (correlation, spread) in enumerate(kinds)
        for seed in range(each)
    ]
    with multiprocessing.Pool(2) as pool:
        outcomes = pool.map(simulated, cases, chunksize=4)
    for number, (correlation, spread) in enumerate(kinds):
        of_kind = outcomes[number * each : (number + 1) * each]
        yield (correlation, spread, each, *(sum(column) for column in zip(*of_kind, strict=True)))


def real_runs(place: Path, steps: int, factors: dict[str, float]) -> list[Summary]:
    """Run the job with two ranks, several times at once, so that all see the same machine.

    Args:
        factors: by the run's name, how much slower rank 1 is.
    """
    script = place / "job.py"
    script.write_text(JOB)
    ranks = [
        subprocess.Popen(
            [*GPUPROF, "run", "--", sys.executable, str(script), str(slower), str(steps)],
            env={
                **os.environ,
                "GPUPROF_BACKEND": "none",
                "GPUPROF_WORKER_GROUPS": "all",
                "GPUPROF_OUTPUT_DIR": str(place),
                "TORCHELASTIC_RUN_ID": name,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, slower in factors.items()
        for rank in range(2)
    ]
    for rank in ranks:
        said = rank.communicate(timeout=300)[1]
        if rank.returncode:
            raise SystemExit(f"the job failed with exit code {rank.returncode}: {said}")
    return [summary_of(place / f"torchrun-{name}") for name in factors]


def real(pairs: int, steps: int, bound: float, worker: str) -> tuple[int, int, int]:
    """The same of real runs: failures of the step, of the scope, and findings."""
    counts = [0, 0, 0]
    on_scope = Condition.parse(f"backward > {bound:.0%}")
    with tempfile.TemporaryDirectory() as place:
        for number in range(pairs):
            factors = {"a": 1.0, "b": 1.0, "c": 1 + 2 * bound}
            one, equal, slower = real_runs(
                Path(place), steps, {f"{number}-{kind}": each for kind, each in factors.items()}
            )
            made = diff([one], [equal], [Condition.parse("step > 5%"), on_scope])
            counts[0] += bool(made.checks[0].failures)
            counts[1] += bool(made.checks[1].failures)
            counts[2] += found(diff([one], [slower], [on_scope]), worker, "backward")
            print(f"pair {number}: {made.step.ratio:.3f} {counts}", file=sys.stderr)
    return counts[0], counts[1], counts[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all pairs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=204)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--real", type=int, default=20, help="pairs of a real job")
    parser.add_argument("--bound", type=float, default=0.25, help="on the scope, relative")
    given = parser.parse_args(arguments)
    made: list[tuple[object, ...]] = []
    if given.pairs:
        made += rows(given.pairs, given.steps, given.bound)
    if given.real:
        made.append(
            ("real", "", given.real, *real(given.real, given.steps, given.bound, "Worker-1"))
        )
    print(
        tabulate(
            made,
            [
                "correlation",
                "spread",
                "pairs",
                "step > 5%",
                f"{SCOPE} > {given.bound:.0%}",
                f"found +{2 * given.bound:.0%}",
            ],
        )
    )
    total = sum(int(str(row[2])) for row in made)
    wrong, right = (sum(int(str(row[column])) for row in made) for column in (3, 5))
    print(f"failed for nothing: {wrong / total:.1%}; found: {right / total:.1%} of {total} pairs")
    return 0 if wrong <= FALSE * total and right >= FOUND * total else 1


if __name__ == "__main__":
    sys.exit(main())

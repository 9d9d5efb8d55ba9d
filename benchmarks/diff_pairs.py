"""How often does ``gpuprof diff`` fail for nothing, and how often does it find a slower scope?

Compares a run, and a baseline of three, with an equal run and with one in which a scope of one rank
is slower by twice the bound on that scope. The runs are simulated, as real ledgers, and real ones
of a small job on Ray, one after the other. Fails if more than 5 % of the equal ones fail with a
bound of 5 % on the step, or fewer than 95 % of the slower ones are found with their scope and rank.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import gpuprof
import ray
from gpuprof._analysis.diff import diff
from gpuprof._analysis.summary import Summary, summary_of
from gpuprof._report.diff import condition
from gpuprof.ray import Profiler
from support.cluster import several_nodes
from support.simulated_pair import SimulatedJob
from tabulate import tabulate

NOISES = ("idle", "rare preemption")
SPREADS = (0.01, 0.02, 0.03)
"""Standard deviations of equal runs: those of small Ray jobs were 1 to 2.5 %."""
FALSE, FOUND = 0.05, 0.95
WORKER, SCOPE = "ActorGroup-1", "actor/backward"
BASELINES = (1, 3)
"""Runs in the baseline."""
Judged = tuple[bool, bool, bool]
Row = tuple[str, float | str, int, int, int, int, int]
REAL_WORKER, REAL_SCOPE = "Learner-1", "learner/backward"


def rest(milliseconds: float) -> None:
    """Sleep so long, a little more or less each time, as work varies."""
    time.sleep(milliseconds * random.uniform(0.95, 1.05) / 1000)


class Learner:
    """A rank of the real job. Its work is sleep, as if a device did it."""

    def __init__(self, slower: float) -> None:
        self.slower = slower

    @gpuprof.timer("learner/train")
    def train(self) -> None:
        """Learn from a batch."""
        with gpuprof.timer("learner/forward"):
            rest(20)
        with gpuprof.timer("learner/backward"):
            rest(40 * self.slower)


def judged(before: Sequence[Summary], equal: Summary, slower: Summary, bound: float) -> Judged:
    """Compare runs with an equal one and with a slower one.

    Returns:
        Whether the equal one fails with a bound of 5 % on the step, or with that on the scope; and
        whether the slower one fails because of this scope of this worker.
    """
    worker, scope = (REAL_WORKER, REAL_SCOPE) if "Learner" in equal.groups else (WORKER, SCOPE)
    conditions = [condition("step > 5%"), condition(f"{scope} > {bound:.0%}")]
    step, on_scope = diff(before, [equal], conditions).checks
    checks = diff(before, [slower], conditions[1:]).checks
    found = any(
        failure.worker == worker and failure.scope.endswith(scope) for failure in checks[0].failures
    )
    return bool(step.failures), bool(on_scope.failures), found


def simulated(case: tuple[int, str, float, int, float]) -> dict[int, Judged]:
    """Judge simulated runs; by the number of runs in the baseline."""
    seed, noise, spread, steps, bound = case
    with tempfile.TemporaryDirectory() as place:

        def run(number: int, slower: float = 1.0) -> Summary:
            job = SimulatedJob(
                1000 * seed + number,
                spread,
                noise,
                slower={(WORKER, SCOPE): slower},
                steps=steps,
            )
            return summary_of(job.write(Path(place, str(number))))

        before, equal, slower = [run(0), run(4), run(5)], run(1), run(3, 1 + 2 * bound)
        return {count: judged(before[:count], equal, slower, bound) for count in BASELINES}


def rows(pairs: int, steps: int, bound: float, processes: int) -> Iterator[Row]:
    """For each noise and spread the failures for nothing and the findings."""
    kinds = list(itertools.product(NOISES, SPREADS))
    each = -(-pairs // len(kinds))
    cases = [
        (number * each + seed, noise, spread, steps, bound)
        for number, (noise, spread) in enumerate(kinds)
        for seed in range(each)
    ]
    with multiprocessing.Pool(processes) as pool:
        outcomes = pool.map(simulated, cases, chunksize=4)
    for count in BASELINES:
        for number, kind in enumerate(kinds):
            mine = [each[count] for each in outcomes[number * each : (number + 1) * each]]
            yield (*kind, count, *_summed(mine))


def _summed(outcomes: Sequence[Judged]) -> tuple[int, int, int, int]:
    first, second, third = (sum(column) for column in zip(*outcomes, strict=True))
    return len(outcomes), first, second, third


def real_run(directory: Path, steps: int, slower: float = 1.0) -> Summary:
    """Run the real job: a driver and two learners.

    Args:
        directory: where to; if it exists, the run in it is taken instead.
        slower: how much longer the scope of the second one takes.
    """
    if directory.exists():
        return summary_of(next(directory.iterdir()))
    config = {
        "backend": "none",
        "worker_groups": "all",
        "instruments": ["ray"],
        "output_dir": str(directory),
        "print_trees": "none",
    }
    with Profiler(config) as profiler:

        def start(rank: int, factor: float) -> Any:
            return profiler.start(
                lambda options: ray.remote(Learner).options(**options).remote(factor),
                group="Learner",
                rank=rank,
                num_cpus=0,
            )

        learners = [start(0, 1.0), start(1, slower)]
        ray.get([learner.__ray_ready__.remote() for learner in learners])
        for step in range(steps):
            with profiler.step(step):
                ray.get([learner.train.remote() for learner in learners])
    for learner in learners:
        ray.kill(learner)
    return summary_of(next(directory.iterdir()))


def real(pairs: int, steps: int, bound: float, place: Path) -> Iterator[Row]:
    """The same of real runs; a baseline is of the last three equal ones."""
    outcomes: dict[int, list[Judged]] = {count: [] for count in BASELINES}
    equal: list[Summary] = []
    for number in range(pairs):
        equal.append(real_run(place / f"{number}-0", steps))
        other = real_run(place / f"{number}-1", steps)
        slower = real_run(place / f"{number}-2", steps, 1 + 2 * bound)
        for count in BASELINES:
            if len(equal) >= count:
                outcomes[count].append(judged(equal[-count:], other, slower, bound))
        equal.append(other)
        print(f"pair {number}", {c: each[-1:] for c, each in outcomes.items()}, file=sys.stderr)
    for count in BASELINES:
        if outcomes[count]:
            yield ("on Ray", "", count, *_summed(outcomes[count]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all pairs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=102, help="of simulated runs")
    parser.add_argument("--steps", type=int, default=100, help="of a simulated run")
    parser.add_argument("--real", type=int, default=20, help="pairs of real runs")
    parser.add_argument("--real-steps", type=int, default=60, help="of a real run")
    parser.add_argument("--bound", type=float, default=0.1, help="on the scope, relative")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where real runs stay, and are taken from")
    given = parser.parse_args(arguments)
    made: list[Row] = []
    if given.pairs:
        made += rows(given.pairs, given.steps, given.bound, given.processes)
    if given.real:
        with tempfile.TemporaryDirectory(prefix="gpr", ignore_cleanup_errors=True) as temporary:
            Path(temporary, "ray").mkdir()
            # Ray starts its workers with niceness 15: they would wait for all else on the machine
            os.environ.update({"RAY_TMPDIR": temporary, "RAY_worker_niceness": "0"})
            with several_nodes(1):
                place = given.keep or Path(temporary, "runs")
                made += real(given.real, given.real_steps, given.bound, place)
    heads = [
        "noise", "spread", "baseline", "pairs",
        "step > 5%", f"scope > {given.bound:.0%}", f"found +{2 * given.bound:.0%}",
    ]  # fmt: skip
    print(tabulate(made, heads, tablefmt="github"))
    met = True
    for of_kind in (True, False):
        for count in BASELINES:
            mine = [row for row in made if row[2] == count and (row[0] == "on Ray") == of_kind]
            total, wrong, on_scope, right = (sum(row[at] for row in mine) for at in range(3, 7))
            if total:
                kind = "on Ray" if of_kind else "simulated"
                print(f"{kind}, {count} before: of {total}: {wrong}, {on_scope}, {right}")
                met = met and wrong <= FALSE * total and right >= FOUND * total
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())

"""How often `gpuprof diff` finds a change: ``python tests/truth/changes.py --sets 60 --real 6``.

A set is three equal runs as a baseline, a fourth one, and two that are 10 % slower: in all work of
all ranks, or of one. Each is compared with one run and with all three. The runs are simulated, or
four processes that meet in each step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import attrs
import click
import numpy as np
from gpuprof._analysis.diff import diff
from gpuprof._analysis.summary import Summary, summary_of
from gpuprof._report.diff import as_dict
from tabulate import tabulate

from truth.causes import Cause
from truth.jobs import Job
from truth.scoring import interval
from truth.topologies import TOPOLOGIES
from truth.world import Machine

SLOWER = 0.1
BASELINES = (1, 3)
"""Runs in the baseline."""
BUSY = 0.1
"""Share of the time that ranks wait for a processor, from which a machine counts as busy."""
_RANKS, _STEPS, _GUILTY = 4, 60, 2
_TOPOLOGIES = ("fan-out", "data parallel", "pairs")
_DISTRIBUTIONS = ("fixed", "log-normal 5 %", "log-normal 15 %")
_PROGRAM = Path(__file__).resolve().parent / "programs" / "ranks_job.py"


@attrs.frozen
class Outcome:
    """What comparisons of a set said.

    Args:
        kind: of runs.
        baseline: how many runs it had.
        alarm: whether something is said to be slower in the equal run.
        step: whether the step is said to be slower where all ranks are.
        rank: whether the slower rank is named, and no other.
        least: the smallest changes that would be found, of a step and of a rank.
        change: of the step between the equal runs.
    """

    kind: str
    baseline: int
    alarm: bool
    step: bool
    rank: bool
    least: tuple[float, float]
    change: float


def judged(kind: str, before: Sequence[Summary], others: Sequence[Summary]) -> Outcome:
    """Compare runs with an equal one, one in which all ranks are slower, and one with one."""
    equal, everybody, one = (as_dict(diff(before, [run])) for run in others)
    named = {rank["worker"].rpartition("-")[2] for rank in one["slower_ranks"]}
    return Outcome(
        kind,
        len(before),
        equal["step"]["low"] > 1 or bool(equal["slower_ranks"]),
        everybody["step"]["low"] > 1,
        named == {str(_GUILTY)},
        (equal["finds"]["step"], equal["finds"]["rank"]),
        equal["step"]["ratio"],
    )


def outcomes(kind: str, runs: Sequence[Summary]) -> list[Outcome]:
    """What the comparisons of six runs said, and whether their machine was busy."""
    waited = max(run.waited or 0.0 for run in runs)
    kind = f"{kind}, busy" if waited > BUSY else kind
    return [judged(kind, runs[:count], runs[3:]) for count in BASELINES]


def simulated(seed: int) -> list[Outcome]:
    """A set of simulated runs."""
    random = np.random.default_rng([seed, 11])
    topology, distribution = str(random.choice(_TOPOLOGIES)), str(random.choice(_DISTRIBUTIONS))
    noise = str(random.choice(["idle", "rare preemption", "loaded"]))
    about = TOPOLOGIES[topology]
    group = next(iter(about.places))
    slower = [(), (), (), (), tuple(
        Cause("slow everywhere", place, (), "", SLOWER) for place in about.places
    ), (Cause("slow rank", group, (_GUILTY,), "", SLOWER),)]  # fmt: skip
    runs = []
    spread = float(random.choice([0.005, 0.015]))  # of equal runs
    with tempfile.TemporaryDirectory() as place:
        for number, causes in enumerate(slower):
            machine = Machine(
                int(random.integers(2**31)),
                _STEPS,
                about.groups(_RANKS),
                distribution=distribution,
                noise=noise,
                pace=float(np.exp(random.normal(0, spread))),
            )
            job = Job(f"{seed}", topology, machine, (), causes)
            runs.append(summary_of(job.write(Path(place, str(number)))))
    return outcomes(f"simulated, {noise}", runs)


def real(place: Path) -> list[Outcome]:
    """A set of real runs."""
    runs = []
    for number, slower in enumerate(
        ["none"] * 4 + [f"all={1 + SLOWER}", f"{_GUILTY}={1 + SLOWER}"]
    ):
        directory = place / str(number)
        directory.mkdir(parents=True)
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "gpuprof", "run", "--set", "worker_groups=all", "--",
                 sys.executable, str(_PROGRAM), "meeting", slower],
                cwd=directory,
                env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                     "WORLD_SIZE": str(_RANKS), "LOCAL_WORLD_SIZE": str(_RANKS),
                     "MASTER_ADDR": "localhost", "MASTER_PORT": "29500",
                     "TORCHELASTIC_RUN_ID": "run"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rank in range(_RANKS)
        ]  # fmt: skip
        for process in ranks:
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, "gpuprof run")
        (written,) = (directory / "gpuprof-output").glob("*/")
        runs.append(summary_of(written))
    return outcomes("real", runs)


def table(found: Iterable[Outcome]) -> str:
    """How often changes were found, and how often nothing was one."""
    rows: dict[tuple[str, int], list[Outcome]] = {}
    for each in found:
        rows.setdefault((each.kind, each.baseline), []).append(each)
    return tabulate(
        [
            [
                kind, runs, len(row),
                *(_share([getattr(each, what) for each in row])
                  for what in ("step", "rank", "alarm")),
                *(f"{100 * (np.median([each.least[at] for each in row]) - 1):.1f} %"
                  for at in (0, 1)),
                _share([_kept(each) for each in row]),
            ]
            for (kind, runs), row in sorted(rows.items())
        ],
        ["runs", "baseline", "sets", "+10 % on all: found", "+10 % on one rank: found",
         "equal: false alarm", "says it finds, step", "rank", "reliable"],
        tablefmt="github",
        disable_numparse=True,
    )  # fmt: skip


def _kept(outcome: Outcome) -> bool:
    """Whether it found what it said that it would find, and nothing else."""
    found = zip(outcome.least, (outcome.step, outcome.rank), strict=True)
    return not outcome.alarm and all(good or least > 1 + SLOWER for least, good in found)


def _share(fits: Sequence[bool]) -> str:
    low, high = interval(sum(fits), len(fits))
    return f"{sum(fits)} ({100 * low:.0f} to {100 * high:.0f} %)"


def sets(simulations: int, real_sets: int, seed: int, processes: int) -> Iterator[Outcome]:
    """The outcomes of all sets."""
    with multiprocessing.Pool(processes) as pool:
        for each in pool.imap(simulated, range(seed, seed + simulations)):
            yield from each
    for number in range(real_sets):
        with tempfile.TemporaryDirectory(prefix="gp") as place:
            yield from real(Path(place, str(number)))


def main() -> None:
    """Compare all sets, and print the table."""
    parser = argparse.ArgumentParser(prog="python tests/truth/changes.py")
    parser.add_argument("--sets", type=int, default=60, help="of simulated runs")
    parser.add_argument("--real", type=int, default=0, help="sets of real runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    click.echo(table(sets(given.sets, given.real, given.seed, given.processes)))


if __name__ == "__main__":
    main()

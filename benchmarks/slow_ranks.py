"""How often `capture_slow` captures the right rank in time, and how often it accuses a healthy one.

Real jobs have four actors on Ray. With a cause, one takes 1.6 times as long from step 30 on, behind
nsys; the times are from the beginning of that step to the order to capture the rank, to the
opening of its window, and to the end of its report. Jobs without a cause have growing steps,
evaluations, checkpoints and single pauses.

Simulated ones are the truth suite's jobs without a cause, looked at after every third step; and the
same with a rank that takes 1.6 times as long from step 60 on, looked at after each step: how many
of these steps it takes to suspect that rank. It is in time within five steps or ten seconds. Work
is steady if it varies by at most 5 % from step to step, on a machine that is not busy.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import gpuprof
import numpy as np
import ray
from gpuprof._analysis import reading
from gpuprof._analysis.live import Live
from gpuprof._analysis.run import Floats, Run
from gpuprof._analysis.trigger import SECONDS, STEPS, suspect
from gpuprof._artifacts import slow_ranks
from gpuprof.ray import Profiler
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from truth.causes import Cause
from truth.jobs import Job, drawn
from truth.topologies import TOPOLOGIES
from truth.world import Machine

_RANKS = 4
_ONSET = 30
_PATIENCE = 40.0
"""Seconds from the onset after which a rank counts as missed."""
_IN_TIME = 10.0
"""The goal."""
_STEPS = 5
"""The same, for long steps."""
_SEED = 36
_SLOWER = 0.6
_LATER = 60
"""The onset in simulated jobs."""
_LONG = 40
"""By what simulated jobs with a slow rank last longer: their steps take two seconds or more."""
_STEADY = ("fixed", "drifting", "log-normal 5 %")
_BUSY = ("loaded", "overloaded")


def _train(seconds: float) -> None:
    """Take about so long, a tenth of it on the processor."""
    with gpuprof.timer("forward"):
        until = time.thread_time() + seconds / 10
        while time.thread_time() < until:
            pass
        time.sleep(0.9 * seconds)


class Rank:
    """A worker."""

    def train(self, seconds: float) -> None:
        """Take a step."""
        _train(seconds)


@attrs.frozen
class _Answer:
    """What came of a real job.

    Args:
        found: the workers that were found to be slow.
        slow: the worker that was.
        ordered: seconds until the order to capture it.
        took: seconds until its window was open.
        reported: seconds until its report was complete.
        cost: share of a core that looking took.
    """

    found: list[str]
    slow: str
    ordered: float
    took: float
    reported: float
    cost: float


def _run(directory: str, seed: int, steps: int, has_cause: bool) -> _Answer:
    """Let a job run."""
    draw = random.Random(seed)
    slow = draw.randrange(_RANKS)
    config = {"worker_groups": ["Rank"], "output_dir": directory, "print_trees": "none"}
    armed = {"backend": "nsight", "armed": True, "steps": [], "nsight": {"preset": "light"}}
    config |= {"capture_slow": 1, **(armed if has_cause else {"backend": "none"})}
    took = reported = float("inf")
    with Profiler(config) as profiler:
        actor = ray.remote(Rank)
        ranks = [
            profiler.start(
                lambda options: actor.options(**options).remote(),
                group="Rank",
                rank=rank,
                num_cpus=0,
            )
            for rank in range(_RANKS)
        ]
        began = time.time()
        onset = float("inf")
        number = 0
        while number < steps or (has_cause and time.time() < onset + _PATIENCE):
            usual = 0.1
            if not has_cause:  # what all ranks have
                usual *= (1 + number / steps) * (4 if number % 10 == 9 else 1)
                usual += 0.3 * (number % 25 == 24)
            lengths = [usual * draw.lognormvariate(0, 0.05) for _ in ranks]
            if not has_cause and draw.random() < 0.05:
                lengths[draw.randrange(_RANKS)] += 0.5
            if has_cause and number >= _ONSET:
                lengths[slow] *= 1.6
                onset = min(onset, time.time())
            with profiler.step(number):
                ray.get(
                    [rank.train.remote(length) for rank, length in zip(ranks, lengths, strict=True)]
                )
            number += 1
            entry = _window(profiler, f"Rank-{slow}") if has_cause else None
            if entry is not None:
                took, reported = entry["opened"] - onset, time.time() - onset
                break
        cost = _processor_seconds(str(profiler.directory)) / (time.time() - began)
    assert profiler.directory is not None
    found = [slow_rank["worker"] for slow_rank in slow_ranks.found(profiler.directory)]
    ordered = [
        file.stat().st_mtime - onset for file in Path(profiler.directory).glob("slow-*.json")
    ]
    until_order = min(ordered, default=float("inf"))
    return _Answer(found, f"Rank-{slow}", until_order, took, reported, cost)


def _window(profiler: Profiler, name: str) -> Any:
    """The record of a worker's window, once that window has been open."""
    assert profiler._windows is not None
    entries = profiler._windows._windows[name].entries
    return next((entry for entry in entries if entry["opened"]), None)


def _processor_seconds(directory: str) -> float:
    """What the companion of a run has used of a processor, with its start."""
    seconds = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if b"gpuprof._report.companion" in command and directory.encode() in command:
                times = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
                seconds += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return seconds


def _real(count: int, steps: int) -> list[list[object]]:
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as directory:
        slow = [_run(directory, seed, steps, has_cause=True) for seed in range(count)]
        healthy = [_run(directory, seed, steps, has_cause=False) for seed in range(count)]
    right = [answer for answer in slow if answer.found == [answer.slow]]
    in_time = sum(answer.took <= _IN_TIME for answer in right)
    rows += [
        ["real, slow rank", count, "right rank captured in time", in_time, round(0.95 * count),
         _spread([answer.took for answer in right], "s")],
        ["", count, "right rank captured", sum(answer.took < np.inf for answer in right), "",
         _spread([answer.ordered for answer in right], "s until the order")],
        ["", count, "other rank captured",
         sum(bool(answer.found) and answer.found != [answer.slow] for answer in slow), 0,
         _spread([answer.reported for answer in right], "s until the report")],
        ["real, no cause", count, "somebody captured", sum(bool(a.found) for a in healthy), 0,
         _spread([100 * answer.cost for answer in healthy], "% of a core for looking")],
    ]  # fmt: skip
    return rows


def _spread(values: list[float], unit: str) -> str:
    return f"{np.median(values):.1f}, {max(values):.1f} {unit}" if values else ""


def _simulated(count: int, ranks: list[int], steps: int) -> list[list[object]]:
    fired = 0
    for number in range(count):
        whole = _recorded(_without_cause(number, ranks, steps))
        ends = range(8, len(whole.steps) + 1, 3)
        fired += any(suspect(_until(whole, end)) is not None for end in ends)
    return [[f"simulated, no cause, {ranks} ranks", count, "somebody suspected", fired, 0, ""]]


@attrs.frozen
class _Onset(Cause):
    """A cause that strikes from step `_LATER` on."""

    def applied(self, times: Floats, call: int, nodes: list[str]) -> Floats:
        """The times of a scope, with this cause in it."""
        slow = super().applied(times, call, nodes)
        return np.where(np.arange(len(times))[:, None] < _LATER, times, slow)


def _slow_simulated(count: int, ranks: list[int]) -> list[list[object]]:
    kinds: dict[str, list[tuple[str, int, float]]] = {"steady work": [], "other work": []}
    for number in range(count):
        job = _without_cause(number, ranks, _LATER + 60)
        group = max(job.machine.groups, key=job.machine.groups.__getitem__)
        rank = number % job.machine.groups[group]
        job.causes = (_Onset("slow rank", group, (rank,), "", _SLOWER, job.about.step),)
        whole = _recorded(job, _LONG)
        onset = next(at for at, step in enumerate(whole.steps) if step.number == _LATER)
        answer = ("nobody", 0, 0.0)
        for end in range(onset + 1, len(whole.steps) + 1):
            found = suspect(_until(whole, end))
            if found is not None:
                seconds = (whole.steps[end - 1].end - whole.steps[onset].start) / 1e9
                who = "right" if found.worker == f"{group}-{rank}" else "other"
                answer = (who, end - onset, seconds)
                break
        is_steady = job.machine.distribution in _STEADY and job.machine.noise not in _BUSY
        kinds["steady work" if is_steady else "other work"].append(answer)
    rows: list[list[object]] = []
    for kind, answers in kinds.items():
        right = [(taken, seconds) for who, taken, seconds in answers if who == "right"]
        in_time = sum(taken <= _STEPS or seconds <= _IN_TIME for taken, seconds in right)
        taken = [float(steps) for steps, _ in right]
        spread = _spread(taken, "steps")
        name, goal = f"simulated, slow rank, {kind}", round(0.95 * len(answers))
        rows += [
            [name, len(answers), "right rank suspected in time", in_time, goal, spread],
            ["", len(answers), "right rank suspected", len(right), "", ""],
            ["", len(answers), "other rank suspected",
             sum(who == "other" for who, *_ in answers), 0, ""],
        ]  # fmt: skip
    return rows


def _looks(counts: list[int]) -> list[list[object]]:
    """What a look costs, by the number of ranks: of a job that has as many steps as count."""
    rows: list[list[object]] = []
    for ranks in counts:
        machine = Machine(_SEED, STEPS, TOPOLOGIES["data parallel"].groups(ranks))
        with tempfile.TemporaryDirectory() as directory:
            Job("looks", "data parallel", machine).write(Path(directory) / "run")
            live = Live(Path(directory) / "run", STEPS, SECONDS)
            times = []
            for _ in range(5):
                began = time.process_time()
                run = live.look()
                assert run is not None
                suspect(run)
                times.append(1000 * (time.process_time() - began))
        rows.append([f"a look at {ranks} ranks", 5, "ms of a processor, least", min(times), "", ""])
    return rows


def _without_cause(number: int, ranks: list[int], steps: int) -> Job:
    job = drawn(_SEED, number, without_cause=ranks[number % len(ranks)])
    job.machine.steps = steps
    return job


def _recorded(job: Job, scale: int = 2) -> Run:
    with tempfile.TemporaryDirectory() as directory:
        job.write(Path(directory) / "run", scale)
        return reading.read(Path(directory) / "run")


def _until(whole: Run, end: int) -> Run:
    """A run up to some step, in which the last steps count."""
    edges = {number: of_rank[:, :end] for number, of_rank in whole.edges.items()}
    run = attrs.evolve(whole, steps=whole.steps[:end], edges=edges)
    for position in run.usual[:-STEPS]:
        run.steps[position] = attrs.evolve(run.steps[position], warm_up=True)
    return run


def main() -> int:
    """Print the counts beside the goals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulated", type=int, default=150)
    parser.add_argument("--slow", type=int, default=40)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--looks", type=int, nargs="*", default=[4, 32, 128])
    parser.add_argument("--real", type=int, default=20)
    parser.add_argument("--steps", type=int, default=160)
    given = parser.parse_args()
    rows = [
        *_simulated(given.simulated, given.ranks, given.steps),
        *_slow_simulated(given.slow, given.ranks),
        *_looks(given.looks),
    ]
    if given.real:
        with tempfile.TemporaryDirectory() as directory:
            ray.init(
                "local",
                num_cpus=_RANKS,
                include_dashboard=False,
                log_to_driver=False,
                _temp_dir=directory,
            )
            rows += _real(given.real, given.steps)
            ray.shutdown()
    head = ["runs", "number", "what", "in so many", "goal", "median and most"]
    print(tabulate(rows, head))
    return 0


if __name__ == "__main__":
    sys.exit(main())

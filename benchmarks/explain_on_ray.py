"""Does ``gpuprof explain`` find causes in real runs on Ray, and none where there is none?

Two nodes of Ray's on this machine, and on them a small job: a driver calls rollout workers, each of
which calls an environment, then learners, then the one that hands out the weights. Their work is
sleep, so that the machine's other work disturbs it little. Eight causes, each planted in several
runs, and runs without a cause. Prints who was named. Fails if somebody else was, or anybody in a
run without a cause.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import gpuprof
import ray
from gpuprof._analysis import reading
from gpuprof._analysis.causes import Finding
from gpuprof._analysis.explain import Explanation, explain
from gpuprof._shim.node import unique_name
from gpuprof.ray import Profiler
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from support.cluster import several_nodes
from support.simulated_job import CAUSES, EXPECTED
from tabulate import tabulate

COLLECTOR = "garbage collection"


def rest(milliseconds: float) -> None:
    """Sleep so long, a little more or less each time, as work varies."""
    time.sleep(milliseconds * random.uniform(0.95, 1.05) / 1000)


class Worker:
    """A worker of any group. What is planted slows one of them, or one on a node."""

    def __init__(self, cause: str | None, rank: int, second_node: bool) -> None:
        self.cause = cause
        self.rank = rank
        self.slow_node = cause == "slow node" and second_node
        self.others: list[Any] = []
        collects = cause == COLLECTOR and rank == 1
        self.objects: list[list[None]] = [[] for _ in range(500_000 * collects)]

    def meet(self, others: list[Any]) -> None:
        """Learn whom to talk to."""
        self.others = others

    def take(self, milliseconds: float, cause: str = "") -> None:
        """Work."""
        factor = 1.5 if self.slow_node else 1.0
        if cause and cause == self.cause and self.rank == 1:
            factor = 1.8
        rest(milliseconds * factor)

    @gpuprof.timer("rollout/generate")
    def generate(self, prompts: None) -> None:
        """Predict, in three exchanges with the environment."""
        for _ in range(3):
            with gpuprof.timer("rollout/predict"):
                self.take(9, "slow rank")
            with gpuprof.timer("rollout/ask"):
                ray.get(self.others[self.rank].act.remote())

    @gpuprof.timer("env/act")
    def act(self) -> None:
        """One exchange of an environment."""
        with gpuprof.timer("env/step"):
            self.take(9, "slow environment")
            if self.cause == "pauses" and self.rank == 1 and random.random() < 0.15:
                rest(60)
            elif self.cause == COLLECTOR and self.rank == 1 and random.random() < 0.15:
                gc.collect()

    @gpuprof.timer("actor/run_training")
    def train(self) -> None:
        """Learn from a batch."""
        with gpuprof.timer("next_batch", waits_for="data"):
            rest(40 if self.cause == "data stall" else 1)
        with gpuprof.timer("actor/backward"):
            self.take(20)

    @gpuprof.timer("actor/sync_model_to_rollout")
    def sync(self) -> None:
        """Hand out the weights."""
        rest(50 if self.cause == "slow weight sync" else 4)


class Source:
    """Where prompts come from. gpuprof knows nothing of it."""

    def load(self) -> None:
        """Take long."""
        rest(40)


def is_right(cause: str | None, found: Finding | None) -> bool:
    """Whether the finding names what was planted. Many pauses are a slow rank, too."""
    if cause is None or found is None:
        return cause is None and found is None
    kind, worker, scope = EXPECTED[cause]
    if cause == "slow node":
        worker = unique_name(os.uname().nodename, ray.nodes()[1]["NodeID"])
    kinds = (kind, "rank") if cause == "pauses" else (kind,)
    named = worker in (found.worker, found.group)
    return found.cause in kinds and named and scope in ("", found.scope)


def run(cause: str | None, ranks: int, steps: int, directory: Path) -> Explanation:
    """Run a job, and explain it."""
    config = {
        "backend": "none",
        "worker_groups": "all",
        "instruments": ["ray"],
        "output_dir": str(directory),
        "print_trees": "none",
    }
    nodes = [node["NodeID"] for node in ray.nodes()]
    source = ray.remote(Source).options(num_cpus=0).remote()
    with Profiler(config) as profiler:

        def start(group: str, rank: int) -> Any:
            second = rank >= ranks // 2
            place = NodeAffinitySchedulingStrategy(nodes[second], soft=False)
            return profiler.start(
                lambda options: ray.remote(Worker).options(**options).remote(cause, rank, second),
                group=group,
                rank=rank,
                num_cpus=0,
                scheduling_strategy=place,
            )

        envs, rollouts, actors = (
            [start(group, rank) for rank in range(ranks)]
            for group in ("EnvGroup", "RolloutGroup", "ActorGroup")
        )
        ray.get([rollout.meet.remote(envs) for rollout in rollouts])
        ray.get([worker.__ray_ready__.remote() for worker in (*envs, *actors)])
        for step in range(steps):
            with profiler.step(step):
                with gpuprof.timer("runner/generate"):
                    prompts = [None] * ranks
                    if cause == "late start":
                        prompts[1] = source.load.remote()
                    ray.get(
                        [
                            rollout.generate.remote(each)
                            for rollout, each in zip(rollouts, prompts, strict=True)
                        ]
                    )
                with gpuprof.timer("runner/compute_rewards"):
                    rest(45 if cause == "serial driver" else 2)
                with gpuprof.timer("runner/train"):
                    ray.get([actor.train.remote() for actor in actors])
                with gpuprof.timer("runner/sync_weights"):
                    ray.get(actors[0].sync.remote())
    for worker in (source, *envs, *rollouts, *actors):
        ray.kill(worker)
    return explain(reading.read(next(directory.iterdir())))


def main() -> int:
    """Run all jobs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=2, help="runs of each cause (default: 2)")
    parser.add_argument("--without", type=int, default=10, help="runs without a cause")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--causes", nargs="*", default=CAUSES, choices=CAUSES)
    given = parser.parse_args()
    cases: list[str | None] = [cause for cause in given.causes for _ in range(given.times)]
    cases += [None] * given.without
    rows, right = [], 0
    with tempfile.TemporaryDirectory(prefix="gpr", ignore_cleanup_errors=True) as temporary:
        Path(temporary, "ray").mkdir()
        # Ray starts its workers with niceness 15: they would wait for all else on the machine
        os.environ.update({"RAY_TMPDIR": temporary, "RAY_worker_niceness": "0"})
        with several_nodes(2):
            for number, cause in enumerate(cases):
                found = run(cause, given.ranks, given.steps, Path(temporary, str(number)))
                first = next((each for each in found.findings if each.cause != "once"), None)
                good = is_right(cause, first)
                right += good
                said = f"{first.cause}: {first.worker} {first.scope}" if first else "nobody"
                saves = "" if first is None or first.saves is None else f"{100 * first.saves:.0f} %"
                step = f"{1000 * found.seconds['median']:.0f} ms"
                rows.append([cause or "none", "yes" if good else "no", said, saves, step])
                print(*rows[-1], sep=" | ", flush=True)
    print(tabulate(rows, ["planted", "right", "named", "saves", "a step"], tablefmt="github"))
    print(f"{right} of {len(cases)} right")
    return int(right < len(cases))


if __name__ == "__main__":
    sys.exit(main())

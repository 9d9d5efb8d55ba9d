"""Small RL jobs on Ray that note their samples: ``python sample_jobs.py SHAPE [CAUSE]``.

A stand-in for an engine sleeps for each token. Prints the seconds that the loop took.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time

import gpuprof
import ray

STEPS, SAMPLES, ROLLOUTS, BATCH = 24, 7, 3, 12
SHAPE, CAUSE = sys.argv[1], [*sys.argv[2:], ""][0]
CAP = float(os.environ.get("CAP", "inf"))
"""Tokens at which samples end."""
FASTER = float(os.environ.get("FASTER", "1"))
"""How many times as fast the trainer is."""
A_TOKEN, TRAINING = 0.00035, (0.13 if SHAPE == "spare" else 0.1) / FASTER
"""Seconds. Generating a batch takes about 0.1 s, too, so only `spare` has slots to spare."""


class Engine:
    """Generates samples, each a task of its own; a third of them call a tool."""

    def __init__(self, rank: int) -> None:
        self.random = random.Random(rank)

    async def one(self, name: str, version: int) -> None:
        """Generate a sample."""
        draws = self.random
        length, long, calls = draws.lognormvariate(6.2, 0.15), draws.random(), draws.random()
        if CAUSE == "tail" and long < 0.03:
            length *= 4
        if CAUSE == "stragglers" and long < 0.02:
            length *= 5
        length = min(length, CAP)
        await self._decodes(name, length / 2, version)
        if calls < 0.3:
            with gpuprof.sample(name, phase="tool"):
                await asyncio.sleep(0.3 if CAUSE == "tool" else 0.01)
        await self._decodes(name, length / 2, version)

    async def _decodes(self, name: str, tokens: float, version: int) -> None:
        slower = 3.0 if CAUSE == "starved" else 1.0
        with gpuprof.sample(name, phase="generate") as sample:
            sample.note(tokens=round(tokens), version=version)
            await asyncio.sleep(slower * A_TOKEN * tokens)


@ray.remote(num_cpus=0)
class Rollout(Engine):
    """Generates what it is called for, or as much as the buffer takes."""

    async def generate(self, names: list[str], version: int) -> list[str]:
        """Some samples, at once."""
        await asyncio.gather(*(self.one(name, version) for name in names))
        return names

    async def runs(self, buffer: ray.actor.ActorHandle[Buffer], rank: int) -> None:
        """Generate until the buffer is closed."""
        await asyncio.gather(*(self._slot(buffer, f"{rank}:{slot}") for slot in range(SAMPLES)))

    async def _slot(self, buffer: ray.actor.ActorHandle[Buffer], slot: str) -> None:
        count = 0
        while (version := await buffer.admits.remote()) >= 0:
            name, count = f"{slot}:{count}", count + 1
            await self.one(name, version)
            with gpuprof.sample(name, phase="buffered"):
                await buffer.put.remote(name, version)


@ray.remote(num_cpus=0)
class Buffer:
    """Samples until they are trained, and how many may begin."""

    def __init__(self) -> None:
        self.items: list[tuple[str, int]] = []
        self.version = self.begun = 0
        self.closed = False
        self.changed = asyncio.Condition()

    async def admits(self) -> int:
        """Wait until one more sample may begin; returns the version of the weights."""
        async with self.changed:
            await self.changed.wait_for(
                lambda: self.closed or self.begun < (self.version + 4) * BATCH
            )
            self.begun += 1
            return -1 if self.closed else self.version

    async def put(self, name: str, version: int) -> None:
        """Take a sample, unless it is too old."""
        async with self.changed:
            if CAUSE == "stale" and hash_of(name) < 0.6:
                self.begun -= 1
            else:
                self.items.append((name, version))
            self.changed.notify_all()

    async def take(self) -> list[str]:
        """A batch, once it is there."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.items) >= BATCH)
            batch, self.items = self.items[:BATCH], self.items[BATCH:]
            return [name for name, _ in batch]

    async def publishes(self, version: int) -> None:
        """A new version of the weights; -1 ends the job."""
        async with self.changed:
            self.closed = version < 0
            self.version = version
            self.changed.notify_all()


def hash_of(name: str) -> float:
    """A number from 0 to 1, the same in each run."""
    return random.Random(name).random()


@ray.remote(num_cpus=0)
class Trainer:
    """Trains what it is given, or what it takes."""

    def update(self, version: int, *batches: list[str]) -> int:
        """One step."""
        self._trains([name for names in batches for name in names], version)
        return version + 1

    def runs(self, buffer: ray.actor.ActorHandle[Buffer]) -> float:
        """All steps. Returns how many seconds they took, but for the first."""
        ends = []
        for step in range(STEPS):
            with gpuprof.step(step):
                self._trains(ray.get(buffer.take.remote()), step)
                ray.get(buffer.publishes.remote(step + 1))
            ends.append(time.perf_counter())
        ray.get(buffer.publishes.remote(-1))
        return ends[-1] - ends[0]  # in the first, rollouts may still be starting

    def _trains(self, names: list[str], version: int) -> None:
        phases = [gpuprof.sample(name, phase="trained") for name in names]
        for phase in phases:
            phase.__enter__()
            phase.note(version=version)
        with gpuprof.timer("learn"):
            time.sleep(TRAINING)
        for phase in phases:
            phase.__exit__(None, None, None)


def rounds() -> float:
    """Each step all rollouts generate, then the trainer trains."""
    rollouts = [Rollout.remote(rank) for rank in range(ROLLOUTS)]
    trainer = Trainer.remote()
    ray.get([rollout.generate.remote([], 0) for rollout in rollouts])
    version = ray.get(trainer.update.remote(0))
    begun = time.perf_counter()
    for step in range(STEPS):
        names = [[f"{step}:{rank}:{n}" for n in range(SAMPLES)] for rank in range(ROLLOUTS)]
        batches = [
            rollout.generate.remote(mine, version)
            for rollout, mine in zip(rollouts, names, strict=True)
        ]
        version = ray.get(trainer.update.remote(version, *batches))
    return time.perf_counter() - begun


def free() -> float:
    """Rollouts generate beside training."""
    buffer = Buffer.options(max_concurrency=100).remote()
    rollouts = [Rollout.options(max_concurrency=4).remote(rank) for rank in range(ROLLOUTS)]
    running = [rollout.runs.remote(buffer, rank) for rank, rollout in enumerate(rollouts)]
    took: float = ray.get(Trainer.remote().runs.remote(buffer))
    ray.get(running)
    return took


def spare() -> float:
    """The same with a slower trainer."""
    return free()


def main() -> None:
    """Run one shape."""
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR",
             _temp_dir=os.environ["RAY_DIRECTORY"])  # fmt: skip
    sys.stdout.write(f"loop {globals()[SHAPE]():.3f}\n")


main()

"""Small jobs on Ray that have never heard of gpuprof: ``python ray_jobs.py SHAPE [CAUSE]``.

The cause is a worker that takes three times as long, or half as long: ``half Judge-0``. What works
sleeps, so that two cores are enough for all, but for the driver. Prints the seconds that the loop
took.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable

import ray

ROUNDS = 40
SHAPE, CAUSE = sys.argv[1], [*sys.argv[2:], ""][0]


def work(name: str, seconds: float, cause: str = "") -> float:
    """Seconds that somebody takes, a tenth more or less: three times as long for the cause."""
    return seconds * random.Random(name).uniform(0.9, 1.1) * (3 if CAUSE == (cause or name) else 1)


class Worker:
    """Works in several ways; each shape has a class of its own, as a group is named after it."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.random = random.Random(f"{type(self).__name__}-{rank}")

    def _sleep(self, seconds: float) -> None:
        name = f"{type(self).__name__}-{self.rank}"
        factor = {name: 3.0, f"half {name}": 0.5}.get(CAUSE, 1.0)
        time.sleep(seconds * self.random.uniform(0.9, 1.1) * factor)


@ray.remote(num_cpus=0)
class Sampler(Worker):
    """Samples."""

    def sample(self, weights: int) -> int:
        """One round's."""
        self._sleep(0.03)
        return weights + self.rank


@ray.remote(num_cpus=0)
class Learner(Worker):
    """Learns."""

    def update(self, *samples: int) -> int:
        """From all samples of a round."""
        self._sleep(0.02)
        return len(samples)


@ray.remote(num_cpus=0)
class Reader(Worker):
    """The first stage of a chain."""

    def read(self, number: int) -> int:
        """One batch."""
        self._sleep(0.02)
        return number


@ray.remote(num_cpus=0)
class Encoder(Worker):
    """The second one."""

    def encode(self, batch: int) -> int:
        """One batch."""
        self._sleep(0.02)
        return batch


@ray.remote(num_cpus=0)
class Writer(Worker):
    """The last one."""

    def write(self, batch: int) -> int:
        """One batch."""
        self._sleep(0.02)
        return batch


@ray.remote(num_cpus=0)
class Judge(Worker):
    """Scores what many send, one call after the other."""

    def score(self, sample: int) -> int:
        """One sample."""
        self._sleep(0.008)
        return sample


@ray.remote(num_cpus=0)
class Player(Worker):
    """Asks the judge for itself."""

    def play(self, judge: ray.actor.ActorHandle[Judge]) -> int:
        """A game, and its score."""
        self._sleep(0.03)
        score: int = ray.get(judge.score.remote(self.rank))
        return score


@ray.remote(num_cpus=0)
class Server(Worker):
    """Holds the weights."""

    def exchange(self, gradient: int) -> int:
        """Take a gradient, and give weights."""
        self._sleep(0.004)
        return gradient


@ray.remote(num_cpus=0)
class Trainer(Worker):
    """Trains on its own, as often as it can."""

    def train(self, server: ray.actor.ActorHandle[Server], times: int) -> int:
        """Some steps."""
        for _ in range(times):
            self._sleep(0.02)
            ray.get(server.exchange.remote(self.rank))
        return times


@ray.remote(num_cpus=0)
class Engine(Worker):
    """Answers."""

    def generate(self, prompt: int) -> int:
        """One answer."""
        self._sleep(0.03)
        return prompt


@ray.remote(num_cpus=0)
class Router(Worker):
    """Asynchronous: sends each prompt to an engine, and awaits all answers."""

    def __init__(self, engines: list[ray.actor.ActorHandle[Engine]]) -> None:
        super().__init__()
        self.engines = engines

    async def route(self, prompts: int) -> int:
        """So many prompts."""
        calls = [
            self.engines[prompt % len(self.engines)].generate.remote(prompt)
            for prompt in range(prompts)
        ]
        return len(await asyncio.gather(*calls))


@ray.remote(num_cpus=0)
class Evaluator(Worker):
    """Evaluates every tenth round."""

    def evaluate(self, number: int) -> int:
        """The weights of a round."""
        time.sleep(0.01)
        return number


def fan_out() -> Callable[[int], object]:
    """Samplers, then a learner; every tenth round an evaluation."""
    samplers = [Sampler.remote(rank) for rank in range(4)]
    learner, evaluator = Learner.remote(), Evaluator.remote()

    def step(number: int) -> None:
        weights = ray.get(learner.update.remote(*[each.sample.remote(number) for each in samplers]))
        if number % 10 == 9:
            ray.get(evaluator.evaluate.remote(weights))

    return step


def blocking() -> Callable[[int], object]:
    """The same with the driver between the two, who prepares the batch."""
    samplers = [Sampler.remote(rank) for rank in range(4)]
    learner = Learner.remote()

    def step(number: int) -> None:
        samples = ray.get([each.sample.remote(number) for each in samplers])
        until = time.thread_time() + work(f"driver-{number}", 0.015, "driver")
        while time.thread_time() < until:  # sleeping, it might wait for anything
            pass
        ray.get(learner.update.remote(*samples))

    return step


def chain() -> Callable[[int], object]:
    """Stages, of which each takes what the one before it has made; four batches at once."""
    reader, encoder, writer = Reader.remote(), Encoder.remote(), Writer.remote()

    def step(number: int) -> None:
        ray.get(
            [
                writer.write.remote(encoder.encode.remote(reader.read.remote(4 * number + batch)))
                for batch in range(4)
            ]
        )

    return step


def judged() -> Callable[[int], object]:
    """Players, which share a judge."""
    judge = Judge.remote()
    players = [Player.remote(rank) for rank in range(6)]
    return lambda _: ray.get([player.play.remote(judge) for player in players])


def served() -> Callable[[int], object]:
    """Trainers of their own pace and a parameter server."""
    server = Server.remote()
    trainers = [Trainer.remote(rank) for rank in range(4)]
    return lambda _: ray.get([trainer.train.remote(server, 3) for trainer in trainers])


def routed() -> Callable[[int], object]:
    """An asynchronous router in front of engines."""
    router = Router.remote([Engine.remote(rank) for rank in range(3)])
    return lambda _: ray.get(router.route.remote(6))


def main() -> None:
    """Run one shape."""
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR",
             _temp_dir=os.environ["RAY_DIRECTORY"])  # fmt: skip
    step = globals()[SHAPE]()
    step(-1)  # all actors are there
    begun = time.perf_counter()
    for number in range(ROUNDS):
        step(number)
    sys.stdout.write(f"loop {time.perf_counter() - begun:.3f}\n")


main()

"""A run that never ran, of a driver and workers that generate samples, some of which take long."""

from __future__ import annotations

import random
from pathlib import Path

from support.simulated_run import SimulatedLedger, write_run

SECOND = 10**9


def write(directory: Path, steps: int = 8, workers: int = 4, samples: int = 16) -> Path:
    """Write the run.

    Args:
        steps: how many.
        workers: how many generate.
        samples: of each worker in a step.
    """
    chance = random.Random(7)
    driver, trainer = SimulatedLedger("Runner", "driver"), SimulatedLedger("Trainer-0")
    rollouts = [SimulatedLedger(f"Rollout-{rank}") for rank in range(workers)]
    now = 0
    for step in range(steps):
        begin, done = now, now
        for rank, worker in enumerate(rollouts):
            last = begin
            for number in range(samples):
                name = f"{step}/{rank * samples + number}"
                worker.sample(name, "queued", begin, begin + 1)
                start = begin + chance.randrange(SECOND // 10)
                long = 4.0 if number == 0 and rank < 2 else 1.0
                middle = start + int(SECOND * chance.uniform(0.3, 0.8) * long)
                end = middle + int(SECOND * chance.uniform(0.05, 0.2))
                tokens = (middle - start) // 2_000_000
                worker.sample(name, "generate", start, middle, tokens=tokens, version=step)
                if number % 4 == 0:
                    third = (middle - start) // 3
                    worker.sample(name, "tool", start + third, middle - third)
                worker.sample(name, "reward", middle, end)
                last = max(last, end)
            worker.span("generate", begin, last)
            done = max(done, last)
        for sample in range(workers * samples):
            trainer.sample(f"{step}/{sample}", "trained", done, done + SECOND, version=step + 1)
        trainer.span("train", done, done + SECOND)
        now = done + SECOND
        driver.step(step, begin, now)
        driver.span("wait", begin, now, waits_for="Rollout")
        driver.attributes(step, now, tokens=samples * workers * 250, buffer=3)
    return write_run(directory, [driver, trainer, *rollouts])

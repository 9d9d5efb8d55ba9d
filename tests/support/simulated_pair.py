"""Simulated runs to compare, as real ledgers: equal but for chance, or with a slower scope.

A driver calls two rollout workers, then two learners that wait for each other. Steps remember the
one before, now and then one takes much longer, and whole runs differ, as real ones do.
"""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import numpy as np

from support.simulated_run import SimulatedLedger, write_run

MS = 1_000_000
SCOPES = {
    "RolloutGroup": (("rollout/reset", 4.0), ("rollout/generate", 40.0)),
    "ActorGroup": (("actor/forward", 12.0), ("actor/backward", 24.0)),
}
"""Milliseconds that each scope takes."""


@attrs.define
class SimulatedJob:
    """A run to simulate.

    Args:
        seed: of all that varies.
        correlation: of each step with the next one.
        spread: the standard deviation of equal runs, relative.
        noise: the same of steps in a run.
        slower: how much longer a scope takes, by the worker's name and the scope.
        steps: how many, after two of warm-up.
        ranks: of each group.
    """

    seed: int
    correlation: float = 0.0
    spread: float = 0.015
    noise: float = 0.03
    slower: dict[tuple[str, str], float] = attrs.field(factory=dict)
    steps: int = 100
    ranks: int = 2

    def write(self, directory: Path) -> Path:
        """Simulate the run, and write its ledgers. Returns the directory."""
        random = np.random.default_rng(self.seed)
        run = math.exp(random.normal(0, self.spread))
        driver = SimulatedLedger("Runner", "driver")
        workers = {
            group: [SimulatedLedger(f"{group}-{rank}") for rank in range(self.ranks)]
            for group in SCOPES
        }
        memory = random.normal(0, 1)
        now = 0
        for step in range(self.steps + 2):
            fresh = random.normal(0, 1)
            memory = self.correlation * memory + math.sqrt(1 - self.correlation**2) * fresh
            factor = run * math.exp(self.noise * memory) * (3.0 if step < 2 else 1.0)
            begin = now
            for group, ledgers in workers.items():
                ends = []
                for ledger in ledgers:
                    at = now + MS // 10
                    for scope, usual in SCOPES[group]:
                        took = usual * factor * math.exp(random.normal(0, self.noise / 3))
                        if random.random() < 0.01:  # another process on the core
                            took *= 1 + random.exponential(0.5)
                        took *= self.slower.get((ledger.name, scope), 1.0)
                        ledger.span(scope, at, at + int(took * MS))
                        at += int(took * MS)
                    ends.append(at)
                for ledger, end in zip(ledgers, ends, strict=True):
                    ledger.span("barrier", end, max(ends) + 1, waits_for="barrier")
                driver.span("call", now, max(ends) + MS // 10, waits_for=group)
                now = max(ends) + MS // 5
            driver.step(step, begin, now)
        return write_run(directory, [driver, *(each for g in workers.values() for each in g)])

"""Simulated runs to compare, as real ledgers: equal but for chance, or with a slower scope.

A driver calls two rollout workers, then two learners that wait for each other. Their work varies as
in the generated jobs of `truth`.
"""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import numpy as np
from truth.world import Machine

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
        spread: the standard deviation of equal runs, relative.
        noise: what else the machine does: a key of `truth.world.NOISES`.
        slower: how much longer a scope takes, by the worker's name and the scope.
        steps: how many, after one of warm-up.
        ranks: of each group.
    """

    seed: int
    spread: float = 0.015
    noise: str = "idle"
    slower: dict[tuple[str, str], float] = attrs.field(factory=dict)
    steps: int = 100
    ranks: int = 2

    def write(self, directory: Path) -> Path:
        """Simulate the run, and write its ledgers. Returns the directory."""
        pace = math.exp(np.random.default_rng(self.seed).normal(0, self.spread))
        groups = dict.fromkeys(SCOPES, self.ranks)
        machine = Machine(self.seed, self.steps + 1, groups, noise=self.noise, pace=pace)
        driver = SimulatedLedger("Runner", "driver")
        workers = {
            group: [SimulatedLedger(f"{group}-{rank}") for rank in range(self.ranks)]
            for group in SCOPES
        }
        now = 0
        for step in range(self.steps + 1):
            begin = now
            for group, ledgers in workers.items():
                ends = []
                for rank, ledger in enumerate(ledgers):
                    at = now + MS // 10
                    for scope, usual in SCOPES[group]:
                        took = machine.usual(group, scope, usual, True, 0)[step, rank]
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

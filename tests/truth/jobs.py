"""Jobs, all drawn from a seed, and what really slows them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection
from pathlib import Path

import attrs
import numpy as np

from truth.causes import BETWEEN, OF_SAMPLES, PASSING, START, SUBMIT, UNEVEN, Accusation, Cause
from truth.fresh import FRESH
from truth.rollouts import LENGTH, ROLLOUTS
from truth.second import SECOND
from truth.topologies import CHECKPOINT, LOAD, LOG, SYNC, TOPOLOGIES, Topology, shape_of
from truth.world import DISTRIBUTIONS, DRIVER, NOISES, Machine, Recorder, World

SUITES = {
    "usual": TOPOLOGIES,
    "fresh": FRESH,
    "second": SECOND,
    "samples": ROLLOUTS,
    "parts": {
        name: attrs.evolve(about, kinds=(PASSING,))
        for name, about in {**TOPOLOGIES, **FRESH}.items()
        if "slow rank" in about.kinds
    },
}
"""Kinds of jobs. `explain` was not tuned for those of ``fresh`` and ``second``; in ``samples``,
samples are noted; in ``parts``, a rank is slow in one part of the run."""
MATTERS = 0.05
"""Share of the loop that a cause saves, from which it is to be named."""
RECORDS = ("full", "no keys", "waits as work")
_CALLS = 1000
"""Ranks times steps, about."""


@attrs.define(slots=False)
class Job:
    """A job.

    Args:
        name: where it comes from.
        topology: see `SUITES`.
        machine: what varies anyway.
        planted: the kinds of its causes.
        causes: what makes it slow.
        mechanism: what it has that `explain` does not model; empty for nothing.
        record: what its ledgers have; see `Recorder`.
    """

    name: str
    topology: str
    machine: Machine
    planted: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    mechanism: str = ""
    record: str = "full"

    @property
    def about(self) -> Topology:
        """What it is built from."""
        return next(suite[self.topology] for suite in SUITES.values() if self.topology in suite)

    @property
    def lacks(self) -> str:
        """What its ledgers lack; empty for nothing."""
        if self.record != "full":
            return self.record
        return self.about.lacks

    @property
    def ranks(self) -> int:
        """Of its largest group."""
        return max(self.machine.groups.values())

    def run(
        self,
        causes: tuple[Cause, ...],
        recorder: Recorder | None = None,
        without: Accusation | None = None,
    ) -> World:
        """Let it run with these causes."""
        adapts = self.mechanism == "adaptive batches"
        world = World(self.machine, causes, recorder, without, adapts)
        self.about.run(world, self.mechanism)
        return world

    def write(
        self, directory: Path, scale: int = 1, renamed: dict[str, list[int]] | None = None
    ) -> Path:
        """Let it run with all its causes, and write its ledgers. Returns the directory."""
        recorder = Recorder(self.machine, self.record, scale, renamed)
        self.run(self.causes, recorder)
        return recorder.write(directory)

    def saves(self, accusation: Accusation) -> float:
        """Share of the loop that is saved without what is accused."""
        return 1 - self.run(self.causes, without=accusation).loop / self.loop

    @functools.cached_property
    def loop(self) -> float:
        """Milliseconds."""
        return self.run(self.causes).loop

    def _without(self, removed: Collection[int]) -> float:
        """The milliseconds of the loop without some of its causes.

        Uneven tokens are the same tokens dealt evenly then: with fewer it would be another job.
        """
        dealt = [number for number in removed if self.causes[number].kind == "uneven tokens"]
        left = [
            cause
            for number, cause in enumerate(self.causes)
            if number not in removed or number in dealt
        ]
        evenly = Accusation("Rollout", (), LENGTH, to="dealt") if dealt else None
        return self.run(tuple(left), without=evenly).loop

    @functools.cached_property
    def savings(self) -> dict[tuple[int, ...], float]:
        """Share of the loop that is saved without each set of causes."""
        numbers = [number for number, cause in enumerate(self.causes) if cause.nameable]
        return {
            removed: 1 - self._without(removed) / self.loop
            for size in range(1, len(numbers) + 1)
            for removed in itertools.combinations(numbers, size)
        }  # fmt: skip

    @functools.cached_property
    def truth(self) -> dict[tuple[int, ...], float]:
        """The minimal sets of causes without which the loop takes at least 5 % less."""
        minimal: dict[tuple[int, ...], float] = {}
        for removed, saving in self.savings.items():
            if saving >= MATTERS and not any(set(known) < set(removed) for known in minimal):
                minimal[removed] = saving
        return minimal

    @functools.cached_property
    def bounded(self) -> bool:
        """Whether the loop would take 5 % less if its server took half the time."""
        group, scope = self.about.server
        return bool(group) and self.saves(Accusation(group, (0,), scope, to="half")) >= MATTERS

    @property
    def observable(self) -> bool:
        """Whether any minimal set is to be seen.

        The rule of the generator: what a rank does inside a scope in which ranks meet unseen,
        before they meet, is the same in all ledgers whichever rank does it. So is slow work and
        more work, where no ledger tells how much work each rank has.
        """
        return any(
            all(self.causes[number].scope not in self.about.hidden for number in removed)
            for removed in self.truth
        )


def drawn(seed: int, number: int, without_cause: int = 0, suite: str = "usual") -> Job:
    """A job of a suite.

    Args:
        without_cause: how many ranks it has, and no cause; 0 for any number and any causes.
        suite: see `SUITES`.
    """
    random = np.random.default_rng([seed, number])
    topologies = SUITES[suite]
    large_enough = [name for name, about in topologies.items() if about.most >= without_cause]
    topology = str(random.choice(large_enough))
    about = topologies[topology]
    large = random.random()
    ranks = int(np.round(2 ** random.uniform(1, 6)))
    if large < 0.02 and about.most >= 512:
        ranks = 512
    if large < 0.004 and about.most >= 4096:
        ranks = 4096
    ranks = without_cause or ranks
    mechanism = str(random.choice(about.mechanisms)) if random.random() < 0.2 else ""
    machine = Machine(
        int(random.integers(2**31)),
        int(np.clip(_CALLS / ranks, 12, random.integers(24, 64))),
        about.groups(ranks),
        per_node=int(random.choice([4, 8])),
        distribution=str(random.choice(DISTRIBUTIONS)),
        noise=str(random.choice(list(NOISES), p=[0.4, 0.15, 0.2, 0.1, 0.15])),
        retries=mechanism == "retries",
    )
    count = int(random.choice([0, 1, 2, 3], p=[0.2, 0.65, 0.1, 0.05]))
    kinds = random.permutation([kind for kind in about.kinds if fits(kind, about, machine)])
    planted = tuple(str(kind) for kind in kinds[:count])
    causes = [cause for kind in planted for cause in causes_of(kind, about, machine, random)]
    record = str(random.choice(RECORDS, p=[0.8, 0.1, 0.1]))
    name = f"{seed}:{number}"
    if without_cause:
        machine.retries = False
        return Job(name, topology, machine)
    return Job(name, topology, machine, planted, tuple(causes[:3]), mechanism, record)


def fits(kind: str, about: Topology, machine: Machine) -> bool:
    """Whether a job is large enough for a kind of cause."""
    group = next(iter(about.places))
    return {
        UNEVEN: machine.groups[group] >= 4,
        "two slow ranks": machine.groups[group] >= 4,
        "slow node": machine.groups[group] >= 2 * machine.per_node,
    }.get(kind, True)


def causes_of(
    kind: str, about: Topology, machine: Machine, random: np.random.Generator
) -> list[Cause]:
    """A cause of this kind, or two that are equal but for their ranks."""
    group = str(random.choice(list(about.places)))
    scope = str(random.choice(about.places[group]))
    ranks = machine.groups[group]
    size = float(np.exp(random.uniform(np.log(0.1), np.log(2))))
    rank, other = random.permutation(max(2, ranks))[:2].tolist()
    cause = Cause(kind, group, (rank,), scope, size, about.step, seed=int(random.integers(2**31)))
    trainer = list(machine.groups)[-1] if "Learner" not in machine.groups else group
    loaders = next(iter(about.places))
    if kind == "two slow ranks":
        return [attrs.evolve(cause, kind="slow rank", ranks=(number,)) for number in (rank, other)]
    changes: dict[str, dict[str, object]] = {
        "slow node": {"group": "", "scope": "", "ranks": (),
                      "node": machine.nodes(group)[rank]},
        "slow everywhere": {"ranks": ()},
        "slow server": {"group": about.server[0], "scope": about.server[1], "ranks": (0,),
                        "size": 4 * size},
        "serial driver": {"group": DRIVER, "ranks": (0,), "scope": "runner/compute_metrics"
                          if "mixed" in about.run.__name__ or "fan" in about.run.__name__
                          else "runner/compute_rewards"},
        "slow submission": {"group": DRIVER, "ranks": (0,), "scope": SUBMIT},
        "between steps": {"group": DRIVER if DRIVER in machine.groups else group, "ranks": (),
                          "scope": BETWEEN},
        "slow loader": {"group": loaders, "ranks": (rank % machine.groups[loaders],),
                        "scope": LOAD},
        "slow loader everywhere": {"group": loaders, "ranks": (), "scope": LOAD},
        "slow sync": {"group": "ActorGroup", "ranks": (0,), "scope": SYNC},
        "late start": {"scope": START},
        "checkpoint": {"group": trainer, "ranks": (0,), "scope": CHECKPOINT},
        "logging": {"group": trainer, "ranks": (0,), "scope": LOG},
        UNEVEN: {"ranks": _role(about, ranks, machine.seed)},
        "imbalance": {"ranks": ()},
    }  # fmt: skip
    changes |= {kind: {"ranks": ()} for kind in OF_SAMPLES}
    changes["slow tool"]["size"] = changes["slow reward"]["size"] = 4 * size
    change = changes.get(kind, {})
    if kind in about.sites:
        place, scope = about.sites[kind]
        change |= {"group": place, "scope": scope}
    return [attrs.evolve(cause, **change)]


def _role(about: Topology, ranks: int, seed: int) -> tuple[int, ...]:
    """The ranks that have more to do: a stage, the second half, or every other one."""
    if "stages" in about.run.__name__:
        stages, *others = shape_of(ranks)
        stage = seed % stages
        return tuple(range(stage * math.prod(others), (stage + 1) * math.prod(others)))
    return tuple(range(1, ranks, 2) if seed % 2 else range((ranks + 1) // 2, ranks))

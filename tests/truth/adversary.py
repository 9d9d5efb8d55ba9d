"""Search jobs that make `gpuprof explain` lie: ``python tests/truth --adversary MINUTES``.

Hypothesis draws descriptions of jobs, and is steered towards claims that removal does not bear out,
and towards accusations of workers without whom the job takes as long. What it finds is printed as a
description that a test can hold.
"""

from __future__ import annotations

import itertools
import time

import attrs
import click
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st

from truth.fresh import FRESH
from truth.jobs import Job, causes_of, fits
from truth.scoring import NOTHING, explained, judged
from truth.topologies import TOPOLOGIES
from truth.world import DISTRIBUTIONS, NOISES, Machine

ALL = TOPOLOGIES | FRESH
_ROUND = 150
"""Jobs of a round: a search that does not get worse answers begins anew."""
_LISTED = 5


@attrs.frozen
class Description:
    """A job, in a line.

    Args:
        topology: see `ALL`.
        ranks: of its largest group, about.
        steps: how many.
        seed: of all draws.
        distribution: of its work.
        noise: of its machine.
        causes: kinds, each with its size; kinds that the topology cannot have are left out.
    """

    topology: str
    ranks: int
    steps: int
    seed: int
    distribution: str = "fixed"
    noise: str = "idle"
    causes: tuple[tuple[str, float], ...] = ()

    @property
    def job(self) -> Job:
        """The job that is described."""
        about = ALL[self.topology]
        groups = about.groups(min(self.ranks, about.most))
        machine = Machine(
            self.seed, self.steps, groups, 4, distribution=self.distribution, noise=self.noise
        )
        random = np.random.default_rng([self.seed, 5])
        causes = tuple(
            attrs.evolve(cause, size=size)
            for kind, size in self.causes
            if kind in about.kinds and fits(kind, about, machine)
            for cause in causes_of(kind, about, machine, random)
        )
        kinds = tuple(dict.fromkeys(cause.kind for cause in causes))
        return Job("described", self.topology, machine, kinds, causes)


def descriptions() -> st.SearchStrategy[Description]:
    """Any job whose ledgers have what it waits for."""
    kinds = sorted({kind for about in ALL.values() for kind in about.kinds})
    sizes = st.floats(0.05, 3.0).map(lambda size: round(size, 2))
    return st.builds(
        Description,
        st.sampled_from(sorted(name for name, about in ALL.items() if not about.lacks)),
        st.integers(2, 16),
        st.integers(14, 40),
        st.integers(0, 10_000),
        st.sampled_from(DISTRIBUTIONS),
        st.sampled_from(sorted(NOISES)),
        st.lists(
            st.tuples(st.sampled_from(kinds), sizes), max_size=2, unique_by=lambda cause: cause[0]
        ).map(tuple),
    )


@attrs.frozen(order=True)
class Lie:
    """What an answer claims too much, as a share of the loop, and of which job it says what."""

    excess: float
    job: str
    words: str


def search(minutes: float, first: int) -> None:
    """Search for so long, and print the worst answers of both kinds.

    Args:
        first: the seed of the first round.
    """
    until = time.monotonic() + 60 * minutes
    overclaims: dict[str, Lie] = {}
    accusations: dict[str, Lie] = {}
    looked = 0

    def look(description: Description) -> None:
        nonlocal looked
        if time.monotonic() > until:
            return
        looked += 1
        outcome = judged(description.job, explained(description.job))
        claimed, real = outcome.claimed, outcome.real
        if claimed is None or real is None or outcome.expected == "hidden":
            return
        words = (
            f"{outcome.grade}: {outcome.words}; claims {claimed:.1%}, really {real:.1%}; "
            f"truth: {outcome.truth or 'nobody'}"
        )
        lie = Lie(claimed - real, repr(description), words)
        target(lie.excess, label="claimed minus real saving")
        kept = [overclaims]
        if outcome.said == "wrong":
            target(claimed, label="claimed without any real saving")
            kept.append(accusations)
        for known in kept:  # the worst of each topology
            if known.get(description.topology, lie) <= lie and lie.excess > NOTHING:
                known[description.topology] = lie

    for number in itertools.count(first):
        if time.monotonic() > until:
            break
        seed(number)(
            settings(
                max_examples=_ROUND,
                deadline=None,
                database=None,
                phases=[Phase.generate, Phase.target],
                suppress_health_check=list(HealthCheck),
            )(given(descriptions())(look))
        )()
    click.echo(f"{looked} jobs")
    for head, known in (("Claims too much", overclaims), ("Accuses wrongly", accusations)):
        click.echo(f"\n{head}\n")
        for lie in sorted(known.values(), reverse=True)[:_LISTED]:
            click.echo(f"{lie.excess:+.1%} {lie.job}\n    {lie.words}")

"""What makes a generated job slow, and what takes it away again."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

import attrs
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Words = NDArray[np.uint64]

START = "(start)"
"""The place before a rank's first scope of a step."""
BETWEEN = "(between)"
"""The place between two steps."""
SUBMIT = "(submit)"
"""The place where a driver prepares its calls, one after the other: arguments are pickled, say."""
UNEVEN = "uneven roles"
"""Half of the ranks, or a stage, have more to do than the others: that is their part."""
OF_SAMPLES = {
    "tail": ("tail",),
    "slow tool": ("sample wait",),
    "slow reward": ("sample wait",),
    "uneven tokens": ("uneven tokens",),
    "slow rollouts": ("starved trainer",),
    "lost samples": ("stale samples",),
    "slow learner": ("full buffer", "server"),
}
"""Kinds of causes that the samples of a job have, and what `explain` may call them."""
_MULTIPLIED = (
    "slow rank", "slow node", "slow everywhere", "slow server", UNEVEN, "slow tool", "slow reward",
    "slow rollouts", "slow learner",
)  # fmt: skip
PASSING = "slow for a while"
"""A rank is slow in one part of the run."""
COLLECTOR = "garbage collection"
_PERIOD = 7
"""Steps between two checkpoints."""


def _mixed(words: Words) -> Words:
    """Scramble 64 bits: the finalizer of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def uniform(seed: int, name: str, steps: int, ranks: int = 1) -> Floats:
    """Numbers in (0, 1), by step and rank.

    Each is a hash of the seed, the name, the step and the rank alone. So no draw depends on how
    many others there are, or in which order they are made.
    """
    start = np.array([[seed % 2**32 * 2**32 + zlib.crc32(name.encode())]], np.uint64)
    step = np.arange(1, steps + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    rank = np.arange(1, ranks + 1, dtype=np.uint64)[None, :] * np.uint64(0xC2B2AE3D27D4EB4F)
    words = _mixed(_mixed(_mixed(start) + step) + rank)
    return ((words >> np.uint64(11)).astype(float) + 0.5) / 2.0**53


def normal(seed: int, name: str, steps: int, ranks: int = 1) -> Floats:
    """The same, normally distributed (Box and Muller)."""
    radius = np.sqrt(-2 * np.log(uniform(seed, f"{name}/radius", steps, ranks)))
    angle = uniform(seed, f"{name}/angle", steps, ranks)
    drawn: Floats = radius * np.cos(2 * np.pi * angle)
    return drawn


@attrs.frozen
class Cause:
    """One thing that makes a job slow.

    Args:
        kind: what it is.
        group: whose; empty for a node.
        ranks: the ranks that it hits; empty for all.
        scope: where; empty for all that work.
        size: how much longer that takes, relative: of the work there, or of a usual step.
        step: milliseconds of a usual step.
        node: the node, if it is one.
        seed: of the steps in which it strikes.
    """

    kind: str
    group: str
    ranks: tuple[int, ...] = ()
    scope: str = ""
    size: float = 1.0
    step: float = 0.0
    node: str = ""
    seed: int = 0

    def hits(self, group: str, scope: str, works: bool) -> bool:
        """Whether it changes the time of a group in a scope."""
        if self.node:
            return works
        return group == self.group and (scope == self.scope or (works and not self.scope))

    @property
    def nameable(self) -> bool:
        """Whether there is anybody to name. Where all ranks are slow, nobody is slower."""
        return self.kind != "slow everywhere"

    def applied(self, times: Floats, call: int, nodes: list[str]) -> Floats:
        """The times of a scope in milliseconds, by step and rank, with this cause in it.

        Args:
            call: which one of the step's calls; what happens once a step happens in the first.
            nodes: of the ranks.
        """
        steps, ranks = times.shape
        times = times.copy()
        hit = list(self.ranks or range(ranks))
        if self.node:
            hit = [rank for rank, node in enumerate(nodes) if node == self.node]
        if self.kind in _MULTIPLIED:
            times[:, hit] *= 1 + self.size
        elif self.kind == "tail":
            long = uniform(self.seed, f"tail/{call}", steps, ranks) < 0.03
            times = np.where(long, (1 + 4 * self.size) * times, times)
        elif self.kind == "uneven tokens":  # of a worker in a step, whichever samples it has
            times *= np.exp(min(0.6, self.size) * normal(self.seed, "uneven", steps, ranks))
        elif self.kind == "lost samples":
            lost = uniform(self.seed, f"lost/{call}", steps, ranks) < min(0.5, self.size / 3)
            times = times + lost
        elif self.kind == "drift":
            times[:, hit] *= 1 + 2 * self.size * np.linspace(0, 1, steps)[:, None]
        elif self.kind == PASSING:
            length = round(steps * (0.25 + 0.4 * float(uniform(self.seed, "length", 1)[0, 0])))
            first = round((steps - length) * float(uniform(self.seed, "first", 1)[0, 0]))
            times[first : first + length, hit] *= 1 + 2 * self.size
        elif self.kind == "imbalance":
            slowest = (uniform(self.seed, "imbalance", steps)[:, 0] * ranks).astype(int)
            times[np.arange(steps), slowest] *= 1 + 2 * self.size
        elif call == 0:
            often, added = self.occasions(steps)
            times[np.ix_(often, hit)] += added
        return times

    def occasions(self, steps: int) -> tuple[list[int], float]:
        """In which steps it strikes, and how many milliseconds it then takes."""
        often, much = self._often(steps)
        return often, much * self.size * self.step

    def _often(self, steps: int) -> tuple[list[int], float]:
        if self.kind == COLLECTOR:
            return np.flatnonzero(uniform(self.seed, COLLECTOR, steps)[:, 0] < 0.4).tolist(), 1.5
        if self.kind == "pauses":
            drawn = uniform(self.seed, "pauses", steps)[:, 0]
            drawn[0] = 1.0  # the warm-up would hide it
            return np.flatnonzero((drawn < 0.04) | (drawn == drawn.min())).tolist(), 12.0
        if self.kind == "checkpoint":
            return list(range(3, steps, _PERIOD)), float(_PERIOD)
        return list(range(steps)), 1.0


@attrs.frozen
class Accusation:
    """What an answer accuses, so that the job can run without it.

    Args:
        group: whose; empty for all.
        ranks: which of them; empty for all.
        node: the node, if it is one.
        scope: where; empty for all scopes.
        to: how fast it becomes: as the median of the ``peers`` of its role in each step, or as it
            usually is if there are none; as the ``mean`` of all in each step; ``half``; ``zero``;
            ``capped``: no sample is longer than `most`; or ``dealt``: the same samples, dealt
            evenly.
        most: the length at which samples end.
    """

    group: str
    ranks: tuple[int, ...] = ()
    scope: str = ""
    node: str = ""
    to: Literal["peers", "mean", "half", "zero", "capped", "dealt"] = "peers"
    most: float = 0.0

    def applied(
        self, group: str, scope: str, times: Floats, nodes: list[str], heavy: Collection[int] = ()
    ) -> Floats:
        """The times of a scope with nothing to accuse in it.

        Args:
            heavy: the ranks that have more to do by their role. They have peers among themselves.
        """
        if self.group not in ("", group) or scope != (self.scope or scope):
            return times
        ranks = times.shape[1]
        hit = list(self.ranks or range(ranks))
        if self.node:
            hit = [rank for rank in range(ranks) if nodes[rank] == self.node]
        others = [rank for rank in range(ranks) if rank not in hit]
        times = times.copy()
        if self.to in ("capped", "dealt"):
            return times  # of samples, once all that makes their lengths is known
        if self.to == "zero":
            times[:, hit] = 0.0
        elif self.to == "half":
            times[:, hit] /= 2
        elif self.to == "mean":
            times[:, hit] = times.mean(axis=1)[:, None]
        else:
            for role in (True, False):
                mine = [rank for rank in hit if (rank in heavy) is role]
                peers = [rank for rank in others if (rank in heavy) is role]
                if peers:
                    times[:, mine] = np.median(times[:, peers], axis=1)[:, None]
                else:
                    times[:, mine] = np.median(times[:, mine], axis=0)
        return times

"""Which rank of a running job is worth a capture: `gpuprof explain`'s test, on the last steps.

The test is repeated while the job runs. So chance must be rarer than for an answer that is given
once, the rank must have been slow for some time, and it must cost more: a capture costs time, too.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
import numpy as np

from gpuprof._analysis import stragglers
from gpuprof._analysis.live import written
from gpuprof._analysis.run import Run
from gpuprof._analysis.stragglers import ALL, Straggler

_BY_CHANCE = 1e-6
"""The corrected probability of chance below which a rank is slow. With a look every second, chance
gets there once in ten days at most, even if each look were about other steps."""
_WORTH = 0.1
"""Share of a step by which a rank must exceed the slowest of the others."""
_OFTEN = 0.8
"""Share of the steps in which a rank must be slower than all others."""
_LASTING = 3e9
"""Nanoseconds for which a rank must have been slow: one that lacked a processor for a moment will
be as fast as the others before a profiler looks."""
STEPS, SECONDS = 64, 8.0
"""How many of the last steps to look at, or those of so many seconds if there are more."""
_NARROWER = 2 / 3
"""The test looks at fewer and fewer of the last steps, as the rank may have become slow only now.
"""


@attrs.frozen
class Suspect:
    """A rank to capture, and a healthy one to compare it with.

    Args:
        group: their worker group.
        worker: the slow rank's name.
        rank: its rank.
        peer: the healthy rank's name.
        peer_rank: its rank.
        peers: how many ranks it was compared with.
        scope: where it is slow; empty for several scopes.
        slowest: in how many steps it was the slowest.
        steps: how many steps were examined.
        seconds: by how much it exceeds the others' median per step.
        ratio: its time divided by the others' median.
    """

    group: str
    worker: str
    rank: int
    peer: str
    peer_rank: int
    peers: int
    scope: str
    slowest: int
    steps: int
    seconds: float
    ratio: float


def suspect(run: Run, since: int = 0, known: Collection[str] = ()) -> Suspect | None:
    """The rank that is slower than the others of its group now, if any is.

    Marks all but the examined steps as warm-up.

    Args:
        run: in which the last steps count.
        since: a time of the run in nanoseconds; steps that began earlier do not count.
        known: names of ranks that are known to be slow.
    """
    positions = [position for position in written(run) if run.steps[position].start >= since]
    while len(positions) >= stragglers.LEAST_STEPS:
        steps = [run.steps[position] for position in positions]
        if steps[-1].end - steps[0].start < _LASTING:
            break
        counted = set(positions)
        for position in run.usual:
            if position not in counted:
                run.steps[position] = attrs.evolve(run.steps[position], warm_up=True)
        worth = _WORTH * float(np.mean([step.duration for step in steps]))
        for straggler in stragglers.find(run):
            if _is_slow(straggler, worth):
                slow = _described(run, straggler)
                if slow.worker not in known:
                    return slow
        positions = positions[-int(_NARROWER * len(positions)) :]
    return None


def _is_slow(straggler: Straggler, worth: float) -> bool:
    return (
        straggler.kind in ("rank", "node", "drift")
        and straggler.probability <= _BY_CHANCE
        and straggler.gain >= worth
        and straggler.slowest >= _OFTEN * straggler.steps
    )


def _described(run: Run, straggler: Straggler) -> Suspect:
    ranks = stragglers.members(run, straggler.group)
    work = dict(
        zip(ranks, stragglers.shared_work(run, straggler.group)[run.usual].mean(0), strict=True)
    )
    slow = {run.processes[number].name for number in straggler.processes}
    worker = max(slow & ranks.keys(), key=work.__getitem__)
    others = [name for name in ranks if name not in slow]
    usual = float(np.median([work[name] for name in others]))
    peer = min(others, key=lambda name: abs(work[name] - usual))
    return Suspect(
        straggler.group,
        worker,
        ranks[worker][0].rank,
        peer,
        ranks[peer][0].rank,
        len(others),
        "" if straggler.place == ALL else run.places[straggler.place].name,
        straggler.slowest,
        straggler.steps,
        straggler.excess / 1e9,
        straggler.ratio,
    )

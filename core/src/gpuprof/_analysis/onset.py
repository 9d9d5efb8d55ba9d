"""Which rank became slow in the last steps: each compared with itself before, beside its peers.

A rank's pace in a step is its work divided by the median of the other ranks' in the same step.
Longer responses, evaluations and checkpoints leave it as it is, since all ranks have them, and so
do two parts in a job, since no rank is compared with another one's pace.

If no pace of this run has ever risen nearly as far, the rise has a cause. Where work varies little
from step to step, three steps show it; no test by the order of the ranks can be that fast.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gpuprof._analysis.run import Floats, of_others

_SPANS = (3, 4, 6, 9, 13, 18, 24)
"""Numbers of steps that may be enough."""
OFTEN = 3 / 5
"""Share of the steps in which a rank must be slow. In the others, any rank may pause."""
_SPANS_BEFORE = 16
"""How many spans as long the peers together must have had before, to tell how much a pace varies.
"""
_EXCURSIONS, _SPREADS = 4.0, 2.0
"""How many times the highest pace of any earlier span, and how many standard deviations more, the
pace must have risen. Of 900 simulated jobs without a cause, the worst two reached 3.3 and 1.6, and
2.6 and 1.3."""
TO_NORMAL = 1.4826
"""The standard deviation of normal numbers divided by their median absolute deviation."""


@attrs.frozen
class Onset:
    """A rank that became slow.

    Args:
        rank: its column.
        steps: how many of the last steps show it.
    """

    rank: int
    steps: int


def find(work: Floats, durations: Floats, lasting: float, worth: float) -> Onset | None:
    """The rank whose pace rose most, if that was not by chance.

    Args:
        work: nanoseconds by step and rank.
        durations: nanoseconds of the steps.
        lasting: nanoseconds for which a rank must have been slow.
        worth: share of a step by which it must exceed the slowest of the others.
    """
    working = np.flatnonzero((work > 0).all(axis=0))  # others were not always there
    least = int(np.searchsorted(durations[::-1].cumsum(), lasting)) + 1
    if len(working) < 2 or least > len(work):
        return None
    work = work[:, working]
    paces = np.log(work / of_others(work))
    leads = (work - _most_of_others(work)) / durations[:, None]
    for span in _SPANS:
        steps = max(span, least)
        before = paces[:-steps]
        if (len(working) - 1) * len(before) < _SPANS_BEFORE * span or len(before) < 2 * span:
            continue
        usual = np.median(before, axis=0)
        spread = TO_NORMAL * np.median(np.abs(before - usual), axis=0)
        excursion = max(0.0, float((_held(before, span) - usual).max()))
        limit = _EXCURSIONS * excursion + _SPREADS * spread.clip(np.median(spread))
        rise = _held(paces[-steps:], steps)[0] - usual
        lead = leads[-steps:]
        is_slow = (_held(lead, steps)[0] > 0) & (lead.clip(0).mean(axis=0) >= worth)
        rise = np.where(is_slow & (rise > limit), rise, 0.0)
        if rise.any():
            return Onset(int(working[rise.argmax()]), steps)
    return None


def _held(values: Floats, span: int) -> Floats:
    """What each column reaches or exceeds in that share of the steps of each span."""
    windows = sliding_window_view(values, span, axis=0)
    exceptions = int((span - 1) * (1 - OFTEN))  # none of three steps
    held: Floats = np.partition(windows, exceptions, axis=-1)[..., exceptions]
    return held


def _most_of_others(work: Floats) -> Floats:
    """For each step and rank the most work of any other rank."""
    second, most = np.partition(work, -2, axis=1)[:, -2:].T
    others: Floats = np.where(work == most[:, None], second[:, None], most[:, None])
    return others

"""Typical times of steps, and how far they can be trusted.

Steps that follow each other are alike, so that many steps tell less than as many independent ones
would. And runs differ more than their steps do: another process on the node or another placement of
ranks lasts for a whole run. So does a machine that has more to run than processors. All of these
widen an interval.

An interval of a block bootstrap alone is too narrow with few steps. At 40 steps a nominal 95 %
covers 86 % at an autocorrelation of 0.6, and 50 % at 0.9. So the bootstrap's error is scaled to
what the autocorrelation calls for, and the interval is Student's, with as many degrees of freedom
as there are independent steps.

On a busy machine a rank's speed also wanders for many steps, beneath noise that is new in each. The
correlation of a step with the next is then small, and hides how long the rest lasts. The steps of
one rank are too few to tell; those of all ranks of a group together are not.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import chain

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""The confidence level of intervals."""
USUAL_SPREAD = 0.015
"""The relative standard deviation of equal runs, assumed while fewer than `MEASURED` are known."""
RANKS_SPREAD = 0.01
"""`USUAL_SPREAD` for a rank's time relative to the other ranks'. It is smaller, because what slows
a whole run slows all ranks."""
WAITED_SPREAD = 3.0
"""The relative standard deviation of runs whose threads wait for a processor, divided by the square
of the share of time that they wait. A little waiting is alike in each run: ranks that leave a
barrier together wait for each other."""
RANKS_WAITED_SPREAD = 0.5
"""`WAITED_SPREAD` for a rank's time relative to the other ranks'. It is smaller, because which rank
waits more changes by chance from step to step."""
MEASURED = 3
"""Number of runs from which their own spread counts."""
_TAKEN = 0.9
"""How often runs must find a change of some size, for it to count as one that they can find."""
_WORTH = 4.0
"""Number of runs that the usual spread counts as, in addition to the measured ones."""
_DRAWS = 200
_SEED = 20
_LARGEST_CORRELATION = 0.97
_WIDEST = math.log(1e6)
"""The half width of the widest interval, as a logarithm: a handful of steps tells nothing."""
_FEWEST = 8
"""Number of steps from which to tell how alike they are."""
_WANDERING = 0.9
"""The correlation of a wandering rank's speed in a step with its speed in the next step."""
_SHARES = np.array([[0.0], [0.2], [0.5], [1.0]])
"""Shares of the variance between steps that may come from wandering."""


@attrs.frozen
class Figure:
    """A typical time of a run's steps.

    Args:
        seconds: the median of the steps with any such time, times their share of all steps.
        error: the standard error of the logarithm of `seconds`.
        steps: how many steps have any such time.
        effective: how many independent steps would tell as much.
    """

    seconds: float
    error: float
    steps: int
    effective: float


def figure(values: Floats, lasting: float = 0.0, wandering: float = 1.0) -> Figure:
    """The typical time.

    Args:
        lasting: a relative standard error that more steps would not reduce.
        wandering: the least `_inflation`, estimated from all ranks of the group.
    """
    times = values[values > 0]
    count, share = len(times), len(times) / max(1, len(values))
    if not count:
        return Figure(0.0, 0.0, 0, 0.0)
    median = float(np.median(times))
    logs = np.log(times)
    correlation = _correlation(logs)
    length = _block_length(correlation, count)
    error = _bootstrap(logs, length) if count > 1 else 0.0
    # the bootstrap sees correlation only within its blocks; the rest is known from theory
    inflation = max(wandering, _inflation(correlation, math.inf))
    error *= math.sqrt(inflation / _inflation(correlation, length))
    # whether a step has it at all may be chance, too
    error = math.hypot(error, math.sqrt((1 - share) / count), lasting)
    return Figure(median * share, error, count, count / inflation)


def wandering(ranks: Iterable[Floats]) -> float:
    """By how much wandering speeds inflate the variance of a mean: see `_inflation`.

    Each share of wandering is as likely as the spectra of all ranks make it (Whittle's likelihood).
    The spectra leave out frequency 0, so that estimating the mean does not affect them.

    Args:
        ranks: for each rank of a group, the seconds of each step; 0 for a step without any.
    """
    orders = [_orders(values[values > 0]) for values in ranks]
    orders = [order for order in orders if len(order) >= _FEWEST and order.any()]
    if not orders:
        return 1.0
    likelihood, inflation = 0.0, 0.0
    for order in orders:
        count = len(order)
        angles = 2 * np.pi * np.arange(1, (count - 1) // 2 + 1) / count
        spectrum = np.abs(np.fft.rfft(order)[1 : len(angles) + 1]) ** 2 / (order @ order)
        slow = (1 - _WANDERING**2) / (1 - 2 * _WANDERING * np.cos(angles) + _WANDERING**2)
        expectation = 1 - _SHARES + _SHARES * slow
        variance = (spectrum / expectation).mean(axis=1)
        likelihood -= len(angles) * np.log(variance) + np.log(expectation).sum(axis=1)
        of_mean = 1 + _SHARES[:, 0] * (_inflation(_WANDERING, count) - 1)
        inflation += variance * of_mean / len(orders)
    weights = np.exp(likelihood - np.max(likelihood))
    return max(1.0, float(weights @ inflation / weights.sum()))


def _orders(values: Floats) -> Floats:
    """The rank of each value by size, counted from the middle; equal values share a rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles: Floats = np.cumsum(counts) - (counts + len(values)) / 2
    return middles[place]


def _correlation(values: Floats) -> float:
    """The rank correlation of each value with the next one, corrected for an estimated mean."""
    count = len(values)
    ranks = _orders(values)  # by size alone, as one very slow step would decide otherwise
    if count < _FEWEST or not ranks.any():
        return 0.0
    estimate = float(ranks[1:] @ ranks[:-1] / (ranks @ ranks))
    return min(_LARGEST_CORRELATION, max(0.0, (count * estimate + 1) / (count - 4)))


def _inflation(correlation: float, length: float) -> float:
    """The variance of a mean over so many correlated steps, divided by that of independent ones."""
    whole: float = (1 + correlation) / (1 - correlation)
    beyond: float = (
        2 * correlation * (1 - math.pow(correlation, length)) / (length * (1 - correlation) ** 2)
    )
    return whole - beyond


def _block_length(correlation: float, count: int) -> int:
    """A block length that covers the steps' correlation, and still leaves several blocks."""
    length = math.pow(2 * correlation / (1 - correlation**2), 2 / 3) * math.pow(count, 1 / 3)
    return max(1, min(count // 4, math.ceil(length)))


def _bootstrap(values: Floats, length: int) -> float:
    """The standard deviation of the median over samples made of blocks."""
    count = len(values)
    blocks = math.ceil(count / length)
    random = np.random.default_rng(_SEED)  # fixed: the same runs always get the same answer
    starts = random.integers(0, count - length + 1, (_DRAWS, blocks, 1))
    chosen = (starts + np.arange(length)).reshape(_DRAWS, -1)[:, :count]
    return float(np.median(values[chosen], axis=1).std(ddof=1))


@attrs.frozen
class Change:
    """A typical time in one or more runs compared with another's.

    Args:
        before: seconds per step; the geometric mean of several runs.
        ratio: `after` divided by `before`; ``nan`` unless both have any such time.
        low: the lower end of the ratio's interval.
        finds: the smallest ratio that these runs would tell from chance nine times in ten.
    """

    before: float
    after: float
    ratio: float
    low: float
    high: float
    finds: float = math.nan

    @property
    def seconds(self) -> float:
        """By how much a step's time has changed."""
        return self.after - self.before


def compare(
    before: Sequence[Figure],
    after: Sequence[Figure],
    chances: int = 1,
    usual: float = USUAL_SPREAD,
    pool: Iterable[Sequence[Sequence[Figure]]] = (),
) -> Change:
    """Compare two sets of runs.

    Args:
        chances: how many figures are compared, if any one that stands out decides. The interval is
            widened accordingly.
        usual: the relative standard deviation to assume for equal runs while it is not measured.
        pool: both sides of all figures that are assumed to differ equally between equal runs.
    """
    sides = [[f for f in side if f.seconds > 0] for side in (before, after)]
    centres = [float(np.mean([math.log(f.seconds) for f in side])) for side in sides if side]
    typical = [math.exp(c) for c in centres]
    if len(typical) < 2:
        seconds = (
            [math.exp(centres[0]) if side else 0.0 for side in sides] if centres else [0.0, 0.0]
        )
        return Change(seconds[0], seconds[1], math.nan, math.nan, math.nan)
    within = [sum(f.error**2 for f in side) / len(side) ** 2 for side in sides]
    spread, freedom = _spread([*(pool or [sides])], usual)
    between = spread * sum(1 / len(side) for side in sides)
    variance = sum(within) + between
    parts = [
        (f.error**2 / len(side) ** 2, max(1.0, f.effective - 1)) for side in sides for f in side
    ]
    parts.append((between, freedom))
    # Welch and Satterthwaite: variances that are known to different degrees are added up
    weight = sum(part**2 / degrees for part, degrees in parts)
    degrees = variance**2 / weight if weight else math.inf
    centre = centres[1] - centres[0]
    error = math.sqrt(variance)
    half = student(1 - (1 - LEVEL) / 2 / chances, round(degrees, 1)) * error
    finds = half + statistics.NormalDist().inv_cdf(_TAKEN) * error
    half = min(half, _WIDEST)
    return Change(
        typical[0],
        typical[1],
        math.exp(centre),
        math.exp(centre - half),
        math.exp(centre + half),
        math.exp(finds) if finds < _WIDEST else math.inf,
    )


def _spread(figures: Sequence[Sequence[Sequence[Figure]]], usual: float) -> tuple[float, float]:
    """The variance between equal runs beyond that within each run, and its degrees of freedom.

    The usual variance counts as several runs. From three runs on, their own variance is averaged
    with it. So three runs that happen to agree do not imply that all runs do.

    Args:
        figures: both sides of all figures that are assumed to differ equally between runs.
    """
    total, worth = usual**2 * _WORTH, _WORTH
    for side in chain.from_iterable(figures):
        if len(side) >= MEASURED and all(f.seconds > 0 for f in side):
            variance = float(np.var([math.log(f.seconds) for f in side], ddof=1))
            inside = sum(f.error**2 for f in side) / len(side)
            total += max(0.0, variance - inside) * (len(side) - 1)
            worth += len(side) - 1
    # Nothing measured: the usual spread is an assumption, and as such certain.
    return total / worth, worth if worth > _WORTH else math.inf


@functools.cache
def student(probability: float, degrees: float) -> float:
    """The quantile of Student's distribution, for probabilities of at least a half.

    Computed here because NumPy has none, and SciPy would be a large dependency for one function.

    >>> round(student(0.975, 4), 3), round(student(0.975, float("inf")), 3)
    (2.776, 1.96)
    """
    if degrees > 200:
        return statistics.NormalDist().inv_cdf(probability)
    # With t = √degrees · tan(angle) the density is a power of the angle's cosine.
    angles = np.linspace(0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (degrees - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = np.interp(2 * probability - 1, below / below[-1], angles)
    return math.sqrt(degrees) * math.tan(float(angle))

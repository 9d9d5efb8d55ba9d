"""How likely chance is: binomial tails, Holm's correction, and steps that resemble each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CERTAIN = 0.01
"""The corrected p-value below which a finding is reported."""
LEAST_STEPS = 8
"""Steps below which nothing tells chance from a cause."""
_FAR_APART = 2.0
"""How many times the range of either, in logs, lies between values that are far apart."""
_NONE = 1e-12
"""The largest correlation that is 0 but for rounding."""


def tail(successes: float, trials: float, chance: float) -> float:
    """The probability of at least so many successes in so many trials.

    Args:
        successes: their number, which is rounded down.
        trials: their number, which is rounded up.

    >>> round(tail(9, 10, 0.5), 4), tail(0, 10, 0.5)
    (0.0107, 1.0)
    """
    count, least = math.ceil(trials - 1e-9), math.floor(successes + 1e-9)
    if least <= 0:
        return 1.0
    logs = [
        math.lgamma(count + 1)
        - math.lgamma(hits + 1)
        - math.lgamma(count - hits + 1)
        + hits * math.log(chance)
        + (count - hits) * math.log1p(-chance)
        for hits in range(least, count + 1)
    ]
    if not logs:
        return 0.0
    most = max(logs)
    return min(1.0, math.exp(most) * math.fsum(math.exp(log - most) for log in logs))


def of_ranks(mean: float, of: int, size: int, trials: float) -> float:
    """The probability that some columns rank so high among all, on average, if all are alike.

    By the normal distribution, with a row less so that few rows do not claim too much. With two
    columns this is a sign test, for which use `tail`.

    Args:
        mean: of the ranks of `size` columns among `of`, from 0 for the least.
        trials: independent rows over which it is the mean.

    >>> round(of_ranks(7.5, of=16, size=1, trials=10), 3), of_ranks(15, 16, 1, 10) < 1e-6
    (0.5, True)
    """
    variance = (of + 1) * (of - size) / (12 * size * max(1.0, trials - 1))
    return math.erfc((mean - (of - 1) / 2) / math.sqrt(2 * variance)) / 2


def of_any(probability: float, of: int, size: int) -> float:
    """The probability that chance does to any set of columns what it does to one with this one.

    By Bonferroni's inequality.

    Args:
        size: the number of columns in a set.

    >>> round(of_any(0.001, of=6, size=2), 6), of_any(1e-9, 4096, 2048)
    (0.015, 1.0)
    """
    if not probability:
        return 0.0
    sets = math.lgamma(of + 1) - math.lgamma(size + 1) - math.lgamma(of - size + 1)
    return math.exp(min(0.0, math.log(probability) + sets))


def apart(own: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """The probability of all of some values above all of equally many others, if they are alike.

    It is 1 if they are not apart. Both are in order of time, and resemble the values before them as
    much as their ratio does. But if they are apart by far more than either of them varies, that is
    no reason.

    >>> values = np.array([1.0, 3.0, 2.0, 2.0])
    >>> round(apart(values + 9, values), 4), apart(values + 1, values)
    (0.0143, 1.0)
    """
    if own.min() <= others.max() or others.min() <= 0:
        return 1.0
    gap = math.log(own.min() / others.max())
    widest = math.log(max(own.max() / own.min(), others.max() / others.min()))
    share = 1.0 if gap >= _FAR_APART * widest else independent_share(np.log(own / others))
    count = int(len(own) * share)
    return 1 / math.comb(2 * count, count)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Correct each p-value for the number of p-values, by Holm's method.

    >>> holm([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    """
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    results = [1.0] * len(probabilities)
    largest = 0.0
    for rank, position in enumerate(order):
        largest = max(largest, min(1.0, probabilities[position] * (len(order) - rank)))
        results[position] = largest
    return results


def independent_share(values: NDArray[np.float64]) -> float:
    """The share of the steps that count as independent, as steps resemble those before them.

    It is ``1 / (1 + 2 r)``, where r is the sum of the correlations of each value with the next one,
    with the one after that, and so on, up to the first that is not positive.
    """
    deviations = values - values.mean()
    power = float(deviations @ deviations)
    if len(values) < 4 or power <= 0:
        return 1.0
    spectrum = np.fft.rfft(deviations, 2 * len(values))
    correlations = np.fft.irfft(np.abs(spectrum) ** 2)[: len(values)] / power
    first = int(np.argmax(correlations <= _NONE))
    return float(1 / (1 + 2 * correlations[1:first].sum()))

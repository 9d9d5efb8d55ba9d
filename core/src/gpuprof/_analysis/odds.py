"""How likely chance is: binomial tails, Holm's correction, and steps that resemble each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def tail(successes: float, trials: float, chance: float) -> float:
    """The probability of at least so many successes in so many trials.

    Args:
        successes: their number, which is rounded down.
        trials: their number, which is rounded up.
        chance: the probability that a trial succeeds.

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


def apart(own: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """The probability of all of some values above all of equally many others, if they are alike.

    It is 1 if they are not apart. Both are in order of time, and resemble the values before them as
    much as their ratio does.

    >>> values = np.array([1.0, 3.0, 2.0, 2.0])
    >>> round(apart(values + 9, values), 4), apart(values + 1, values)
    (0.0143, 1.0)
    """
    if own.min() <= others.max() or others.min() <= 0:
        return 1.0
    count = int(len(own) * independent_share(np.log(own / others)))
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
    """The share of the steps that count as independent, as successive steps resemble each other.

    It is ``(1 - r) / (1 + r)``, where r > 0 is the correlation of each value with the next one.
    """
    deviations = values - values.mean()
    power = float(deviations @ deviations)
    if len(values) < 4 or power <= 0:
        return 1.0
    correlation = max(0.0, float(np.dot(deviations[1:], deviations[:-1])) / power)
    return (1 - correlation) / (1 + correlation)

"""Parts of a run in which values are higher than in the rest of it, each as if of two levels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpuprof._analysis import odds
from gpuprof._analysis.run import Floats

LARGEST_PART = 0.75
"""The largest share of the rows that are in such parts."""
_MOST_PARTS = 4
"""Parts in a run: of more, it takes fewer words to call them pauses."""
_ALMOST = 0.999
"""The largest correlation to reckon with, so that its logarithm is finite."""
_FAR = 10.0
"""How many standard deviations two levels must be apart to be no walk of the values."""
_APART = 0.9
"""Share of the rows in parts that must be nearer to the higher level, and share of the others that
must be nearer to the lower one."""


def chance_of(values: Floats, parts: Sequence[tuple[int, int]], rise: float) -> float:
    """The probability that some values are higher in parts of them by chance, by Bonferroni.

    It is 1 if they are not apart, or nearer to a line than to two levels.
    """
    is_within, at = rows_within(parts, len(values)), np.arange(len(values))
    if not 0 < is_within.mean() <= LARGEST_PART:
        return 1.0
    usually = np.median(values[~is_within])
    is_high = values > usually + rise / 2
    left = values - np.where(is_within, np.median(values[is_within]), usually)
    from_line = values - np.polyval(np.polyfit(at, values, 1), at)
    apart = min(is_high[is_within].mean(), 1 - is_high[~is_within].mean())
    if apart < _APART or left @ left > from_line @ from_line:
        return 1.0
    # rows resemble those before them, but no such walk leads so far from one row to the next
    is_far = rise >= _FAR * 1.4826 * np.median(np.abs(left))
    share = 1.0 if is_far else odds.independent_share(left)
    within, without = (math.ceil(rows.sum() * share) for rows in (is_within, ~is_within))
    # of integers, as a long run has more ways than fit into a float
    ways = math.comb(len(values) + 1, 2 * len(parts))
    return ways / math.comb(within + without, within)


def highest_parts(levels: Floats) -> list[tuple[int, int]]:
    """The first and the last row of the part in which each column is high, if it has two levels.

    It is the part with the largest sum above the middle of both.
    """
    low, high = np.quantile(levels, (0.1, 0.9), axis=0)
    return _largest_sums(levels - (low + high) / 2)


def higher_since(values: Floats) -> int | None:
    """The row from which values are higher than before, to the last one; ``None`` if they are not.

    That is, by two levels, and not by chance.
    """
    parts = high_parts(values)
    if len(parts) != 1 or parts[0][1] < len(values) - 1 or parts[0][0] < odds.LEAST_STEPS:
        return None
    (rise,) = rises_of(values[:, None], rows_within(parts, len(values))[:, None])
    return parts[0][0] if chance_of(values, parts, float(rise)) < odds.CERTAIN else None


def high_parts(values: Floats) -> tuple[tuple[int, int], ...]:
    """The first and the last row of each long part in which values are high, in order."""
    low, high = np.quantile(values, (0.1, 0.9))
    above = (values - (low + high) / 2)[:, None]
    parts: list[tuple[int, int]] = []
    while len(parts) < _MOST_PARTS:
        ((first, last),) = _largest_sums(above)
        if last - first + 1 < odds.LEAST_STEPS:
            break
        parts.append((first, last))
        above[first : last + 1] = -np.abs(above).max()
    return tuple(sorted(parts))


def _largest_sums(values: Floats) -> list[tuple[int, int]]:
    """The first and the last row of the part with the largest sum, of each column."""
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:])
    ends = (sums - np.minimum.accumulate(sums, axis=0)).argmax(axis=0).tolist()
    return [(int(sums[: end + 1, column].argmin()), end - 1) for column, end in enumerate(ends)]


def rises_of(values: Floats, is_within: NDArray[np.bool_]) -> Floats:
    """By how much the median of each column is higher in a part of its rows than in the others."""
    rises: Floats = _medians(values, is_within) - _medians(values, ~is_within)
    return rises


def _medians(values: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """The median of the chosen rows of each column, of which there is at least one."""
    in_order = np.sort(np.where(chosen, values, np.inf), axis=0)
    counts, columns = chosen.sum(axis=0), np.arange(values.shape[1])
    medians: Floats = (in_order[(counts - 1) // 2, columns] + in_order[counts // 2, columns]) / 2
    return medians


def rows_within(parts: Sequence[tuple[int, int]], count: int) -> NDArray[np.bool_]:
    """Which of so many rows are in parts of them."""
    is_within = np.zeros(count, bool)
    for first, last in parts:
        is_within[first : last + 1] = True
    return is_within


def chance_of_trend(values: Floats) -> float:
    """The probability that values rise or fall with the row as much as they do by chance."""
    trend = abs(trends(correlations(values[:, None]), len(values))[0])
    return math.erfc(trend / math.sqrt(2))


def correlations(ratios: Floats) -> Floats:
    """Spearman's correlation of each column with the number of the step."""
    steps = len(ratios)
    ranks = np.argsort(np.argsort(ratios, axis=0, kind="stable"), axis=0, kind="stable")
    at = np.arange(steps) - (steps - 1) / 2
    correlations: Floats = at @ (ranks - (steps - 1) / 2) / (at @ at)
    return correlations


def trends(correlations: Floats, steps: int) -> Floats:
    """The correlations in standard deviations, by Fisher's transformation."""
    trends: Floats = np.arctanh(correlations.clip(-_ALMOST, _ALMOST)) * math.sqrt(max(1, steps - 3))
    return trends

"""Compares a profiler's clock with the ledger's, by ranges that are in both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from gpuprof._artifacts.ledger import Ledger
from gpuprof.backend.types import RecordedTrack

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 200
"""The most ranges of one name and thread to compare, because all pairs are compared."""
_FAR = 10_000_000_000
"""The largest plausible difference between the clocks, in nanoseconds."""
_ALIKE = 200_000
"""Tolerance, in nanoseconds, for the lengths of a range and its scope, and for equal shifts."""
_GOOD = 0.8
"""A shift nearer to zero is preferred if it has this share of the best shift's pairs."""


def clock_shift(tracks: Iterable[RecordedTrack], ledger: Ledger, zero: int) -> int | None:
    """The nanoseconds to add to a profiler's times to match the ledger's.

    A range belongs to a scope of the same name and thread, but it is not known to which one. All
    right pairs have the same shift, and the wrong pairs do not.

    Args:
        zero: the nanoseconds to add first. They turn the profiler's times into the run's.

    Returns:
        The shift, in addition to `zero`; ``None`` if no range is also in the ledger.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for number, place in enumerate(ledger.places):
        if place.depth:
            places[place.key].append(number)
    shifts = [np.empty(0, np.int64)]
    for track in tracks:
        if track.kind != "ranges":
            continue
        threads = [number for number, one in enumerate(ledger.tracks) if one.native == track.thread]
        spans = ledger.spans[np.isin(ledger.spans["track"], threads)]
        ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, start, end in track.spans:
            if len(ranges[name]) < _MOST:
                ranges[name].append((start + zero - ledger.offset, end - start))
        for name, times in ranges.items():
            scopes = spans[np.isin(spans["place"], places.get(name, []))]
            shifts.append(_shifts(np.array(times), scopes["start"], scopes["end"]))
    return _most_common(np.sort(np.concatenate(shifts)))


def _shifts(
    ranges: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The shifts of all pairs of a range and a scope that have about the same length."""
    near = (starts >= ranges[0, 0] - _FAR) & (starts <= ranges[-1, 0] + _FAR)
    starts, ends = starts[near], ends[near]
    shifts = starts[None, :] - ranges[:, :1]
    unlike = np.abs(ends[None, :] - starts[None, :] - ranges[:, 1:])
    agreeing: NDArray[np.int64] = shifts[(unlike <= _ALIKE) & (np.abs(shifts) <= _FAR)]
    return agreeing


def _most_common(shifts: NDArray[np.int64]) -> int | None:
    """The shift on which most pairs agree; of about equally common ones, that nearest to zero."""
    if not len(shifts):
        return None
    counts = np.searchsorted(shifts, shifts + _ALIKE, "right") - np.arange(len(shifts))
    good = np.flatnonzero(counts >= _GOOD * counts.max())
    middles = shifts[good + counts[good] // 2]
    return int(middles[np.abs(middles).argmin()])

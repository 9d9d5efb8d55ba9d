"""Trees of several processes as one.

Associative and commutative: trees may arrive in any order and any grouping.
"""

from __future__ import annotations

from gpuprof_timing._node import UNKNOWN, Node, Spread


def merge_into(target: Node, source: Node, name: str) -> None:
    """Add the children of `source`, with all below them, to those of `target`.

    Args:
        name: the name of `source`'s process, for the spread.
    """
    for key, child in source.children.items():
        mine = target.children.get(key)
        if mine is None:
            mine = target.children[key] = Node(key, child.kind, child.average, target)
        _add(mine, child, name)
        merge_into(mine, child, name)


def _add(mine: Node, other: Node, name: str) -> None:
    if other.kind != mine.kind:
        # Two processes that disagree: whoever comes first must not matter.
        mine.kind = min(mine.kind, other.kind)
    mine.average = max(mine.average, other.average)
    mine.count += other.count
    mine.total += other.total
    mine.squares += other.squares
    mine.minimum = min(mine.minimum, other.minimum)
    mine.maximum = max(mine.maximum, other.maximum)
    # The most recent of both; equal times are ordered by the duration, so that the order of merging
    # does not matter.
    mine.ended, mine.last = max((mine.ended, mine.last), (other.ended, other.last))
    mine.entered += other.entered
    mine.elapsed_open += other.elapsed_open
    mine.device_count += other.device_count
    mine.device_total += other.device_total
    total, count = other.windowed()
    mine.window = None
    mine.pooled_total += total
    mine.pooled_count += count
    elapsed = other.total + other.elapsed_open
    spread = other.spread or Spread(1, elapsed, name, elapsed, name)
    mine.spread = spread if mine.spread is None else mine.spread.merged(spread)


def subtract(later: Node, earlier: Node) -> None:
    """Subtract `earlier` from `later`, for all nodes below.

    The extremes of the difference are unknown.
    """
    for key, child in list(later.children.items()):
        before = earlier.children.get(key)
        if before is not None:
            child.count -= before.count
            child.total -= before.total
            child.squares -= before.squares
            child.entered -= before.count
            child.elapsed_open -= before.elapsed_open  # a scope that was open then counts from then
            child.device_count -= before.device_count
            child.device_total -= before.device_total
            child.minimum = UNKNOWN
            subtract(child, before)
        if not (child.count or child.open or child.children):
            del later.children[key]

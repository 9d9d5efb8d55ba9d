"""Trees of several processes as one.

Associative and commutative: trees may arrive in any order and any grouping.
"""

from __future__ import annotations

from gpuprof_timing._node import UNKNOWN, Node, Spread, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def merge_into(target: Node, source: Node, name: str) -> None:
    """Add the children of `source`, with all below them, to those of `target`.

    Args:
        name: the name of `source`'s process, for the spread.
    """
    for mine, other in pairs(target, source):
        _add(mine, other, name)


def pairs(target: Node, source: Node) -> Iterator[tuple[Node, Node]]:
    """Each node below `target` with its counterpart below `source`; adds those it lacks."""
    pending = [(target, source)]
    while pending:
        into, other = pending.pop()
        for key, child in other.children.items():
            mine = into.children.get(key)
            if mine is None:
                mine = into.children[key] = Node(key, child.kind, child.average, into)
            yield mine, child
            pending.append((mine, child))


def common_pairs(one: Node, other: Node) -> Iterator[tuple[Node, Node]]:
    """Each node that both trees have, above its children."""
    pending = [(one, other)]
    while pending:
        above, above_other = pending.pop()
        for key, child in above.children.items():
            counterpart = above_other.children.get(key)
            if counterpart is not None:
                yield child, counterpart
                pending.append((child, counterpart))


def add_sums(mine: Node, other: Node) -> None:
    """Add the counts, sums and extremes of `other`."""
    mine.count += other.count
    mine.total += other.total
    mine.squares += other.squares
    mine.minimum = min(mine.minimum, other.minimum)
    mine.maximum = max(mine.maximum, other.maximum)
    mine.device_count += other.device_count
    mine.device_total += other.device_total


def _add(mine: Node, other: Node, name: str) -> None:
    if other.kind != mine.kind:
        # Two processes that disagree: whoever comes first must not matter.
        mine.kind = min(mine.kind, other.kind)
    mine.average = max(mine.average, other.average)
    add_sums(mine, other)
    # The most recent of both; equal times are ordered by the duration, so that the order of merging
    # does not matter.
    mine.ended, mine.last = max((mine.ended, mine.last), (other.ended, other.last))
    mine.entered += other.entered
    mine.elapsed_open += other.elapsed_open
    total, count = other.windowed()
    mine.window = None
    mine.pooled_total += total
    mine.pooled_count += count
    duration = other.total + other.elapsed_open
    spread = other.spread or Spread(1, duration, name, duration, name)
    mine.spread = spread if mine.spread is None else mine.spread.merged(spread)


def subtract(later: Node, earlier: Node) -> None:
    """Subtract `earlier` from `later`, for all nodes below.

    The extremes of the difference are unknown.
    """
    for child, before in common_pairs(later, earlier):
        _take_off(child, before)
    for child in reversed(list(walk(later))):  # children first: they keep their parents
        if child.parent is not None and not (child.count or child.open or child.children):
            del child.parent.children[child.key]


def _take_off(mine: Node, before: Node) -> None:
    mine.count -= before.count
    mine.total -= before.total
    mine.squares -= before.squares
    mine.entered -= before.count
    mine.elapsed_open -= before.elapsed_open  # a scope that was open then counts from then
    mine.device_count -= before.device_count
    mine.device_total -= before.device_total
    mine.minimum = UNKNOWN

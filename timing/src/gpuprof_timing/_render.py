"""The tree as text, in the layout of Sample Factory's `Timing`.

https://www.samplefactory.dev/07-advanced-topics/profiling/
"""

from __future__ import annotations

from gpuprof_timing._node import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuprof_timing._node import Node


_NOTICEABLE = 1_000_000
"""Nanoseconds. A shorter rest is gpuprof's own, or nothing to look into."""


def tree_lines(root: Node, now: int, other: float | None = None) -> Iterator[str]:
    """The children of `root`: leaves on one line, then each other child with its own subtree.

    Args:
        other: the share of a node's time above which the rest that its children leave is shown, as
            the last leaf.
    """
    pending = [root]
    while pending:
        node = pending.pop()
        if node is not root:
            yield "  " * (node.depth - 1) + _entry(node, now)
        children = node.descend()
        leaves = [_entry(child, now) for child in children if not child.children]
        # what other kinds show is no sum
        if other is not None and children and node.kind == "add_time" and node is not root:
            total = node.elapsed(now)
            rest = total - sum(child.elapsed(now) for child in children)
            if rest > max(other * total, _NOTICEABLE):
                leaves.append(f"(other): {rest / 1e9:.4f}")
        if leaves:
            yield "  " * node.depth + ", ".join(leaves)
        pending.extend(child for child in reversed(children) if child.children)


def open_places(root: Node) -> list[str]:
    """The innermost places with an open scope below `root`, as paths."""
    places: dict[Node, str] = {}
    around: set[Node] = set()  # nodes with an open scope further inside
    for node in walk(root):
        above = node.parent
        places[node] = f"{places[above]}/{node.key}" if above in places else node.key
        while node.open and above is not None and above not in around:
            around.add(above)
            above = above.parent
    return [place for node, place in places.items() if node.open and node not in around]


def _entry(node: Node, now: int) -> str:
    return f"{node.key}: {node.shown(now):.4f}"

"""The tree as text, in the layout of Sample Factory's `Timing`.

https://www.samplefactory.dev/07-advanced-topics/profiling/
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuprof_timing._node import Node


def tree_lines(node: Node, now: int, indent: str = "") -> Iterator[str]:
    """The children of `node`: leaves on one line, then each other child with its own subtree."""
    children = node.descend()
    leaves = [child for child in children if not child.children]
    if leaves:
        yield indent + ", ".join(_entry(leaf, now) for leaf in leaves)
    for child in children:
        if child.children:
            yield indent + _entry(child, now)
            yield from tree_lines(child, now, indent + "  ")


def open_places(node: Node, path: str = "") -> Iterator[str]:
    """The innermost places with an open scope below `node`, as paths."""
    for child in node.descend():
        place = path + child.key
        inside = list(open_places(child, f"{place}/"))
        if child.open and not inside:
            yield place
        yield from inside


def _entry(node: Node, now: int) -> str:
    return f"{node.key}: {node.shown(now):.4f}"

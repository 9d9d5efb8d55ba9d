"""The tree as text, in the layout of Sample Factory's `Timing`.

https://www.samplefactory.dev/07-advanced-topics/profiling/
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuprof_timing._node import Node


def tree_lines(node: Node, indent: str = "") -> Iterator[str]:
    """The children of `node`: those without children on one line, then each of the others with its own below it."""
    children = list(node.children.values())
    leaves = [child for child in children if not child.children]
    if leaves:
        yield indent + ", ".join(map(_entry, leaves))
    for child in children:
        if child.children:
            yield indent + _entry(child)
            yield from tree_lines(child, indent + "  ")


def _entry(node: Node) -> str:
    return f"{node.key}: {node.shown():.4f}"

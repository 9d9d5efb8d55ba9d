"""Reading all keys of a tree, while it grows and when it is large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpuprof_timing import Timing
from gpuprof_timing._node import Node


def test_keys_are_found_as_the_tree_grows(timing: Timing) -> None:
    """What was found out about the tree holds until there is another place, wherever that is."""
    seen = []
    for above, key in [("a", "b"), ("a", "c"), ("c", "b"), ("a", "b")]:
        with timing.add_time(above), timing.add_time(key):
            pass
        seen.append((list(timing), len(timing._find()["b"])))
    assert [
        (["a", "b"], 1),
        (["a", "b", "c"], 1),
        (["a", "c", "b"], 2),
        (["a", "c", "b"], 2),
    ] == seen
    timing.reset()
    assert [] == list(timing)


@pytest.mark.parametrize(
    "read",
    [dict, Timing.flat_str, lambda timing: list(timing.items())],
    ids=["dict", "flat_str", "items"],
)
def test_all_keys_are_found_in_one_walk(
    timing: Timing, monkeypatch: pytest.MonkeyPatch, read: Callable[[Timing], Any]
) -> None:
    """Thousands of keys are not looked for one by one."""
    with timing.add_time("outer"):
        for number in range(100):
            with timing.add_time(f"key {number}"):
                pass
    visited = []
    descend = Node.descend
    monkeypatch.setattr(Node, "descend", lambda node: visited.append(node.key) or descend(node))
    read(timing)
    assert 102 == len(visited)
    assert 102 == len(set(visited))

"""Objects whose own code changes a scope or a node while it is used."""

from __future__ import annotations

import sys
from collections.abc import Callable

from gpuprof_timing import Timing
from gpuprof_timing._node import Node


class Key(str):
    """A name that runs code whenever it is looked up."""

    __slots__ = ("run",)
    run: Callable[[], object]

    def __hash__(self) -> int:
        getattr(self, "run", lambda: None)()
        return str.__hash__(self)

    __eq__ = str.__eq__


def test_a_key_that_gives_its_scope_another_place(timing: Timing) -> None:
    """The scope is timed under the name with which it was entered."""
    with timing.add_time("a"):
        pass
    key = Key("a")
    scope = timing.add_time(key)
    key.run = lambda: setattr(scope, "place", "another")
    del key
    with scope:
        pass
    assert 2 == timing._recording.root.children["a"].count


def test_a_key_that_enters_its_scope_leaks_nothing(timing: Timing) -> None:
    """The node has no more references than before."""
    with timing.add_time("a"):
        pass
    node = timing._recording.root.children["a"]
    before = sys.getrefcount(node)
    for _ in range(10):
        key = Key("a")
        scope = timing.add_time(key)
        entered: list[object] = []
        key.run = lambda scope=scope, entered=entered: (  # type: ignore[misc]
            entered or entered.append(1) or scope.__enter__()
        )
        scope.__enter__()
        scope.__exit__(None, None, None)
        scope.__exit__(None, None, None)
        del key.run
    del scope, key
    assert before == sys.getrefcount(node)


def test_a_number_that_sets_another_one_as_it_goes() -> None:
    """Both are set."""

    class Duration(float):
        def __del__(self) -> None:
            node.total = 0

    node = Node("key", "add_time", 0, None)
    node.total = Duration(1.0)  # type: ignore[assignment]
    node.total = Duration(2.0)  # type: ignore[assignment]
    node.last = 3
    assert 3 == node.last

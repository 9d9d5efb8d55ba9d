"""`Timing`: the tree's public face."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar

from gpuprof_timing._node import Node
from gpuprof_timing._render import tree_lines
from gpuprof_timing._scope import Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from gpuprof_timing._node import Kind

_FORMAT_VERSION = 1


class Timing(Mapping[str, float]):
    """Where the time went, as a tree of named scopes.

    A key may be used at several places of the tree; each place is a node of its own. Threads and asyncio tasks nest separately;
    a task started inside a scope nests below it. As a mapping (and by attribute) it gives seconds for every key: for `add_time`
    the sum over all places that do not lie below the same key, for `timeit` the most recent, for `time_avg`
    the mean of all windows together.

    Args:
        name: the title that the tree is printed under.
        clock: returns nanoseconds, never decreasing.

    >>> ticks = iter(range(0, 10**12, 500_000_000))
    >>> timing = Timing("Learner 0 profile", clock=lambda: next(ticks))
    >>> with timing.add_time("train"):
    ...     with timing.add_time("forward"):
    ...         pass
    >>> print(timing)
    Learner 0 profile tree view:
    train: 1.5000
      forward: 0.5000
    >>> timing["forward"], timing.train
    (0.5, 1.5)
    """

    def __init__(self, name: str = "Profile", *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.name = name
        self._clock = clock
        self._root = Node("", "add_time", 0, None)
        root_scope = Scope(self, "", "add_time", 0)
        root_scope.node = self._root
        root_scope.closed = False
        self._cursor: ContextVar[Scope] = ContextVar("gpuprof_timing_cursor", default=root_scope)
        self._conflicts: set[str] = set()

    def add_time(self, key: str) -> Scope:
        """A scope whose durations are summed."""
        return Scope(self, key, "add_time", 0)

    def timeit(self, key: str) -> Scope:
        """A scope of which the last duration is shown."""
        return Scope(self, key, "timeit", 0)

    def time_avg(self, key: str, average: int = 10) -> Scope:
        """A scope of which the mean of the last `average` durations is shown.

        Raises:
            ValueError: `average` is below 1.
        """
        if average < 1:
            raise ValueError(f"average={average!r}: expected at least 1")
        return Scope(self, key, "time_avg", average)

    def _node(self, above: Node, key: str, kind: Kind, average: int) -> Node:
        """The child `key` of `above`, made where there is none. Not on the hot path: called once for each new place."""
        node = above.children.setdefault(key, Node(key, kind, average, above))
        if node.kind != kind:
            place = "/".join(_path(node))
            if place not in self._conflicts:
                self._conflicts.add(place)
                import logging

                message = "%s: %r is shown as %s, the first use; %s there is ignored"
                logging.getLogger("gpuprof.timing").warning(message, self.name, place, node.kind, kind)
        return node

    def _nodes(self, key: str) -> list[Node]:
        """Every place of `key` that does not lie below another one."""
        found, pending = [], [self._root]
        while pending:
            for node in list(pending.pop().children.values()):
                if node.key == key:
                    found.append(node)
                else:
                    pending.append(node)
        return found

    def __getitem__(self, key: str) -> float:
        nodes = self._nodes(key)
        if not nodes:
            raise KeyError(key)
        windows = [node.window for node in nodes if node.window]
        if windows:
            return sum(map(sum, windows)) / sum(map(len, windows)) / 1e9
        if nodes[0].kind == "timeit":
            return max(nodes, key=lambda node: node.ended).last / 1e9
        return sum(node.total for node in nodes) / 1e9

    def __getattr__(self, key: str) -> float:
        # Private names are never keys here: copy and pickle look for them before there is a tree.
        if not key.startswith("_"):
            try:
                return self[key]
            except KeyError:
                pass
        raise AttributeError(f"{type(self).__name__} {self.__dict__.get('name')!r} has no attribute and no key {key!r}")

    def __iter__(self) -> Iterator[str]:
        seen, pending = {}, [self._root]
        while pending:
            children = list(pending.pop(0).children.values())
            seen.update(dict.fromkeys(node.key for node in children))
            pending.extend(children)
        return iter(seen)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._root.children)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        return "\n".join([f"{self.name} tree view:", *tree_lines(self._root)])

    def __repr__(self) -> str:
        return f"Timing({self.name!r}, keys={len(self)})"

    def flat_str(self) -> str:
        """Every key once, on one line: ``train: 1.5000, forward: 0.5000``."""
        return ", ".join(f"{key}: {value:.4f}" for key, value in self.items())

    def to_dict(self) -> dict[str, Any]:
        """The whole tree in types that JSON has. Durations are nanoseconds; open scopes are not in it."""
        return {
            "version": _FORMAT_VERSION,
            "name": self.name,
            "children": [node.to_dict() for node in list(self._root.children.values())],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Timing:
        """The inverse of `to_dict`.

        Raises:
            ValueError: the data come from another version of the format.
        """
        if data.get("version") != _FORMAT_VERSION:
            raise ValueError(f"timing tree of version {data.get('version')!r}: this gpuprof-timing reads {_FORMAT_VERSION}")
        timing = cls(data["name"])
        for child in data["children"]:
            timing._root.children[child["key"]] = Node.from_dict(child, timing._root)
        return timing

    def __reduce__(self) -> tuple[type[Timing], tuple[str]]:
        """Another process measures its own time: a `Timing` travels as an empty one of the same name."""
        return type(self), (self.name,)


def _path(node: Node) -> list[str]:
    above = node.parent
    return [] if above is None else [*_path(above), node.key]

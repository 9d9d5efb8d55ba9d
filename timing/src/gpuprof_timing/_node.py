"""One place of the tree, and what is known of it in constant memory."""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypeAlias

    Kind: TypeAlias = Literal["add_time", "timeit", "time_avg"]


class Node:
    """Durations of one key at one place, in integer nanoseconds."""

    __slots__ = (
        "average", "children", "count", "ended", "key", "kind", "last", "maximum", "minimum", "parent", "squares", "total",
        "window",
    )  # fmt: skip

    def __init__(self, key: str, kind: Kind, average: int, parent: Node | None) -> None:
        self.key = key
        self.kind = kind
        self.average = average
        self.parent = parent
        self.children: dict[str, Node] = {}
        self.count = 0
        self.total = 0
        self.last = 0
        self.ended = 0
        self.minimum = 0
        self.maximum = 0
        # The exact sum of squares: Python's integers do not round, so deviation and merging need no care.
        self.squares = 0
        self.window: deque[int] | None = deque(maxlen=average) if kind == "time_avg" else None

    def record(self, duration: int, now: int) -> None:
        """Count one scope of `duration` nanoseconds that ends `now`.

        Assignments without calls in between: under the GIL no other thread can run inside them.
        """
        if duration < self.minimum or self.count == 0:
            self.minimum = duration
        if duration > self.maximum:
            self.maximum = duration
        self.count += 1
        self.total += duration
        self.last = duration
        self.ended = now
        self.squares += duration * duration
        if self.window is not None:
            self.window.append(duration)

    def shown(self) -> float:
        """The value that the kind displays, in seconds."""
        if self.kind == "timeit":
            return self.last / 1e9
        if self.window is not None:
            return sum(self.window) / len(self.window) / 1e9 if self.window else 0.0
        return self.total / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has; durations in nanoseconds."""
        return {
            "key": self.key,
            "kind": self.kind,
            "average": self.average,
            "count": self.count,
            "total": self.total,
            "last": self.last,
            "ended": self.ended,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "squares": str(self.squares),  # past 2**53 many JSON readers round
            "window": list(self.window) if self.window is not None else None,
            "children": [child.to_dict() for child in list(self.children.values())],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], parent: Node | None) -> Node:
        """The inverse of `to_dict`."""
        node = cls(data["key"], data["kind"], data["average"], parent)
        for name in ("count", "total", "last", "ended", "minimum", "maximum"):
            setattr(node, name, data[name])
        node.squares = int(data["squares"])
        if node.window is not None:
            node.window.extend(data["window"])
        for child in data["children"]:
            node.children[child["key"]] = cls.from_dict(child, node)
        return node

"""A node of the tree: one place's statistics, in constant memory."""

from __future__ import annotations

from collections import deque
from itertools import repeat

from gpuprof_timing._compiled import slots_in_c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal, Protocol, TypeAlias

    Kind: TypeAlias = Literal["add_time", "timeit", "time_avg"]

    class Entered(Protocol):
        """A node's view of a scope that is or was open in it."""

        node: Node | None
        started: int | None


# The scopes' own strings: the hot path compares kinds by identity.
_KINDS: dict[str, Kind] = {"add_time": "add_time", "timeit": "timeit", "time_avg": "time_avg"}
NEVER = (1 << 63) - 1
"""More nanoseconds than any duration: the minimum of nothing."""
_MOST_SQUARES = NEVER**3
"""More than any sum of squares."""
UNKNOWN = -1
"""Less than any duration: the minimum of a difference, also after merging it."""


def integer(data: Any, name: str | int) -> int:
    """An integer of 64 bits in data that come from a file.

    Raises:
        ValueError, LookupError, TypeError: there is none.
    """
    value = data[name]
    if type(value) is not int or not -NEVER <= value <= NEVER:
        raise ValueError(f"{name}: expected an integer of 64 bits")
    return value


def text(data: Any, name: str) -> str:
    """A text in data that come from a file.

    Raises:
        ValueError, LookupError, TypeError: there is none.
    """
    value = data[name]
    if type(value) is not str:
        raise ValueError(f"{name}: expected text")
    return value


def text_of(key: Any) -> str:
    """A key as a string, as in ranges, traces and files."""
    return key if isinstance(key, str) else str(key)


@slots_in_c
class Node:
    """Durations of one key at one place, in integer nanoseconds. The hot path writes here directly.

    `places` has the nodes that scopes inside have found, by their `Scope.place`: children, and for
    recursion the node itself. `entered` counts scopes as they begin and `count` as they end;
    `latest` is the one that began last, whose time so far is known while it is open. `squares` is
    the exact sum of squares: integers do not round, so the deviation is sound for any number of
    samples and merging is addition. A node that was read or merged has no scopes: `elapsed_open` is
    what they had taken by then. `minimum` and `maximum` are of the part of the run that is not
    over, `past_minimum` and `past_maximum` of earlier ones; see `gpuprof_timing._parts`. Scopes
    here wait for the group `waits_for`, and may have keys if it is `linked`.

    While spans are recorded (`gpuprof_timing._spans`), `limit` is how many are kept in an interval,
    ``None`` if none are; `room` is how many more in `interval`. Calls for which there was no room
    are `folded`: `busy` is their time, the first began at `since`, the last ended at `until`.
    """

    __slots__ = (
        "average", "busy", "children", "count", "depth", "device_count", "device_total",
        "elapsed_open", "ended", "entered", "folded", "interval", "key", "kind", "last", "latest",
        "limit", "linked", "maximum", "minimum", "parent", "past_maximum", "past_minimum", "places",
        "pooled_count", "pooled_total", "room", "since", "spread", "squares", "total", "track",
        "until", "waits_for", "window",
    )  # fmt: skip

    def __init__(self, key: str, kind: Kind, average: int, parent: Node | None) -> None:
        self.key = key
        self.kind: Kind = kind
        self.average = average
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[str, Node] = {}
        self.places: dict[Any, Node] = {}
        self.count = 0
        self.total = 0
        self.last = 0
        self.ended = 0
        self.minimum = NEVER
        self.maximum = 0
        self.past_minimum = NEVER
        self.past_maximum = 0
        self.squares = 0
        self.entered = 0
        self.latest: Entered | None = None
        self.elapsed_open = 0
        self.device_count = 0
        self.device_total = 0
        self.window: deque[int] | None = deque(maxlen=average) if kind == "time_avg" else None
        # The windows of the processes that were merged into this node.
        self.pooled_count = 0
        self.pooled_total = 0
        self.spread: Spread | None = None
        self.limit: int | None = None
        self.room: int | None = None
        self.interval: object = None
        self.folded = 0
        self.busy = 0
        self.since = 0
        self.until = 0
        self.track: Any = None
        self.waits_for: str | None = None
        self.linked = False

    @property
    def top(self) -> Node:
        """The root of its tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def lies_below_its_key(self) -> bool:
        """Whether another node of the same key contains its time."""
        above = self.parent
        while above is not None and above.key != self.key:
            above = above.parent
        return above is not None

    def elapsed(self, now: int) -> int:
        """The total, including the time of open scopes until `now`."""
        return self.total + self.open_for(now)

    @property
    def open(self) -> int:
        """How many scopes are open now."""
        return self.entered - self.count

    def open_for(self, now: int) -> int:
        """The time of the last started scope until `now`; 0 if it has ended."""
        latest = self.latest
        if latest is not None and latest.node is self and latest.started is not None:
            return now - latest.started
        return self.elapsed_open

    def shown(self, now: int) -> float:
        """The value that the kind displays, in seconds."""
        if self.kind == "timeit":
            return self.last / 1e9
        if self.kind == "time_avg":
            total, count = self.windowed()
            return total / count / 1e9 if count else 0.0
        return self.elapsed(now) / 1e9

    def windowed(self) -> tuple[int, int]:
        """Total and number of the durations in the window."""
        window = self.window or ()
        return sum(window) + self.pooled_total, len(window) + self.pooled_count

    @property
    def shortest(self) -> int:
        """The minimum of all parts."""
        return min(self.minimum, self.past_minimum)

    @property
    def longest(self) -> int:
        """The maximum of all parts."""
        return max(self.maximum, self.past_maximum)

    @property
    def has_extremes(self) -> bool:
        """Whether the extremes are known: not before the first scope, nor for a difference."""
        return UNKNOWN < self.shortest <= self.longest

    def mean(self) -> float:
        """The mean of the finished scopes, in seconds; 0 without any."""
        return self.total / self.count / 1e9 if self.count else 0.0

    def deviation(self) -> float:
        """The standard deviation of the finished scopes (of the population), in seconds.

        ``sqrt(E[x²] - E[x]²)``, with the difference taken in integers, where it cannot cancel.
        """
        if not self.count:
            return 0.0
        # below 0 if scopes that lie in two parts of a run have added to `total` only
        spread = max(0, self.count * self.squares - self.total * self.total)
        return float((spread / (self.count * self.count)) ** 0.5) / 1e9

    def descend(self) -> list[Node]:
        """The children; a copy, as other threads may add some."""
        return list(self.children.values())

    def to_dict(self, now: int, wall: int) -> dict[str, Any]:
        """Its own data in types that JSON has; the caller fills in ``children``.

        Durations in nanoseconds; `ended` since the epoch, and 0 where no scope of `timeit` has.

        Args:
            now: the clock.
            wall: what to add to the clock for nanoseconds since the epoch.
        """
        return {
            "key": self.key,
            "kind": self.kind,
            "average": self.average,
            "count": self.count,
            "total": self.total,
            "last": self.last,
            "ended": self.ended + wall if self.ended else 0,  # only `timeit` notes it
            "minimum": self.shortest if self.shortest != NEVER else None,
            "maximum": self.longest,
            "squares": str(self.squares),  # past 2**53 many JSON readers round
            "window": list(self.window) if self.window is not None else None,
            "pooled": [self.pooled_total, self.pooled_count],
            "open": self.open,
            "open_elapsed": self.open_for(now),
            "device_count": self.device_count,
            "device_total": self.device_total,
            "spread": self.spread.to_dict() if self.spread else None,
            "children": [],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], parent: Node) -> Node:
        """The inverse of `to_dict`, for a clock that stands at 0 and began at the epoch.

        Raises:
            ValueError, LookupError, TypeError: `to_dict` does not return such data.
        """
        node = cls(text(data, "key"), _KINDS[data["kind"]], integer(data, "average"), parent)
        for name in ("count", "total", "last", "ended", "maximum", "device_count", "device_total"):
            setattr(node, name, integer(data, name))
        node.minimum = NEVER if data["minimum"] is None else integer(data, "minimum")
        node.squares = int(text(data, "squares"))
        if abs(node.squares) > _MOST_SQUARES:
            raise ValueError("squares: larger than any sum of squares")
        node.entered = node.count + integer(data, "open")
        node.elapsed_open = integer(data, "open_elapsed")
        window = data["window"]
        if window is not None:
            window = deque(map(integer, repeat(window), range(len(window))), maxlen=node.average)
        node.window = window
        node.pooled_total, node.pooled_count = map(integer, repeat(data["pooled"]), range(2))
        node.spread = Spread.from_dict(data["spread"]) if data["spread"] else None
        return node


# Trees can be deeper than Python recurses, so no function here or elsewhere recurses over one.


def walk(root: Node) -> Iterator[Node]:
    """All nodes below `root`, each before its children, in the order of their first scopes."""
    pending = root.descend()[::-1]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.descend()[::-1])


def tree_to_dicts(root: Node, now: int, wall: int) -> list[dict[str, Any]]:
    """The children of `root` with all below them; see `Node.to_dict`."""
    data: dict[Node, list[dict[str, Any]]] = {root: []}
    for node in walk(root):
        own = node.to_dict(now, wall)
        assert node.parent is not None
        data[node.parent].append(own)
        data[node] = own["children"]
    return data[root]


def tree_from_dicts(children: list[dict[str, Any]], root: Node) -> None:
    """The inverse of `tree_to_dicts`: plant `children` below `root`."""
    pending = [(root, children)]
    while pending:
        above, below = pending.pop()
        for data in below:
            node = above.children[data["key"]] = Node.from_dict(data, above)
            pending.append((node, data["children"]))


class _Forgotten(dict["Any", Node]):
    """Replaces the `places` of an old tree's nodes, and drops nodes that a thread adds."""

    def __setitem__(self, place: Any, node: Node) -> None:
        pass


def forget(root: Node) -> None:
    """Keep scopes from finding nodes of this tree, even inside an open one."""
    for node in (root, *walk(root)):
        node.places = _Forgotten()


class Spread:
    """How a node's totals differ between the merged processes. Nanoseconds.

    Args:
        processes: the number of processes that have the node.
        minimum: the smallest total.
        fastest: the process with the smallest total.
        maximum: the largest total.
        slowest: the process with the largest total.
    """

    __slots__ = ("fastest", "maximum", "minimum", "processes", "slowest")

    def __init__(
        self, processes: int, minimum: int, fastest: str, maximum: int, slowest: str
    ) -> None:
        self.processes = processes
        self.minimum = minimum
        self.fastest = fastest
        self.maximum = maximum
        self.slowest = slowest

    def merged(self, other: Spread) -> Spread:
        """The spread of both together.

        Equal totals are ordered by name, so that the order of merging does not matter.
        """
        low = min((self.minimum, self.fastest), (other.minimum, other.fastest))
        high = max((self.maximum, self.slowest), (other.maximum, other.slowest))
        return Spread(self.processes + other.processes, *low, *high)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Spread:
        """The inverse of `to_dict`.

        Raises:
            ValueError, LookupError, TypeError: `to_dict` does not return such data.
        """
        return cls(
            integer(data, "processes"),
            integer(data, "minimum"),
            text(data, "fastest"),
            integer(data, "maximum"),
            text(data, "slowest"),
        )

    def to_dict(self) -> dict[str, Any]:
        """In types that JSON has."""
        return {
            name: getattr(self, name)
            for name in ("processes", "minimum", "fastest", "maximum", "slowest")
        }

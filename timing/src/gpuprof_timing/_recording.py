"""What the scopes of one `Timing` write to: the tree, and where in it the running code is."""

from __future__ import annotations

import sys
from contextvars import ContextVar

from gpuprof_timing import _torch
from gpuprof_timing._cursor import fixed_cursor
from gpuprof_timing._node import Node
from gpuprof_timing._scope import NO_SCOPE, AverageScope, LastScope, NoScope, Scope, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuprof_timing._cursor import Cursor
    from gpuprof_timing._device import DeviceTimes
    from gpuprof_timing._events import EventLog
    from gpuprof_timing._timing import Timing

MAX_NODES = 10_000
"""Places in one tree. A key that is made of data would otherwise fill the memory."""
OVERFLOW = "(more)"
"""The key under which later places are folded."""
_NO_KEY: Any = None  # the root's: equal to no key
_modules = sys.modules


class Recording:
    """The half of `Timing` that scopes know.

    Apart from it because `Timing` finds keys as attributes: a class with `__getattr__` has attributes that are slow to read, and a
    scope would read six of them.

    Attributes:
        timing: whose half it is.
        root: of the tree.
        clock: see `Timing`, like `name`, `enabled` and `strict`.
        events: the last scopes; ``None`` where none are kept.
        device_times: on the GPU; ``None`` until they are asked for.
        get_cursor: tells where the running code is, and `set_cursor` is told.
    """

    __slots__ = (
        "_nodes", "_said", "_without_device", "clock", "device_times", "enabled", "events", "get_cursor", "name", "root",
        "set_cursor", "strict", "timing",
    )  # fmt: skip
    get_cursor: Callable[[], Cursor]
    set_cursor: Callable[[Cursor], object]
    root: Node

    def __init__(
        self,
        timing: Timing,
        name: str,
        clock: Callable[[], int],
        enabled: bool,
        strict: bool,
        events: EventLog | None,
        device_times: DeviceTimes | None,
    ) -> None:
        self.timing = timing
        self.name = name
        self.clock = clock
        self.enabled = enabled
        self.strict = strict
        self.events = events
        self.device_times = device_times
        self._without_device = False
        self.begin()

    def begin(self) -> None:
        """Start an empty tree. What is open belongs to the old one, and ends there."""
        self.root = Node(_NO_KEY, "add_time", 0, None)
        root = make(Scope, self, _NO_KEY)
        root.node = self.root
        # A new variable: contexts still hold scopes of the old tree in the old one.
        cursor = ContextVar("gpuprof_timing", default=fixed_cursor(root))  # noqa: B039 - nobody may move it
        self.get_cursor = cursor.get
        self.set_cursor = cursor.set
        self._nodes = 0
        self._said: set[str] = set()
        if self.events is not None:
            self.events.clear()
        if self.device_times is not None:
            self.device_times.forget()

    def __reduce__(self) -> tuple[Callable[[Timing], Recording], tuple[Timing]]:
        """Travels with its `Timing`: a decorated function and the module around it have one between them, elsewhere too."""
        return _recording_of, (self.timing,)

    # Scopes: see `Timing`

    def add_time(self, key: str, device: str | None = None) -> Scope:
        """A scope whose durations are summed."""
        if device is not None:
            return self._device_scope(key, device)
        if not self.enabled:
            return NO_SCOPE
        if "torch" in _modules and _torch.is_compiling():
            return NoScope()
        # `make(Scope, self, key)`, written out: one call less in the scope that hot loops use.
        scope = Scope()
        scope.recording = self
        scope.place = key
        scope.node = None
        scope._crosses_tasks = False
        return scope

    def timeit(self, key: str) -> Scope:
        """A scope of which the last duration is shown."""
        if not self.enabled:
            return NO_SCOPE
        return NoScope() if _torch.is_compiling() else make(LastScope, self, ("timeit", key))

    def time_avg(self, key: str, average: int) -> Scope:
        """A scope of which the mean of the last `average` durations is shown."""
        if average < 1:
            raise ValueError(f"average={average!r}: expected at least 1")
        if not self.enabled:
            return NO_SCOPE
        if _torch.is_compiling():
            return NoScope()
        scope = make(AverageScope, self, ("time_avg", key))
        scope.average = average
        return scope

    def _device_scope(self, key: str, device: str) -> Scope:
        if device != "cuda":
            raise ValueError(f"device={device!r}: expected 'cuda'")
        if not self.enabled:
            return NO_SCOPE
        if _torch.is_compiling():
            return NoScope()
        if self.device_times is None:
            if self._without_device or "torch" not in _modules:
                return make(Scope, self, key)
            from gpuprof_timing._device import DeviceTimes, find_provider

            provider = find_provider()
            if provider is None:
                self._without_device = True  # asking again would cost ten times the scope
                return make(Scope, self, key)
            self.device_times = DeviceTimes(provider)
        from gpuprof_timing._device import DeviceScope

        return make(DeviceScope, self, key)

    # Nodes

    def find_node(self, above: Node, scope: Scope) -> Node:
        """The node of `scope` inside `above`, made where there is none. Once for each place that is remembered."""
        key = scope.key
        node = above if above.key == key else above.children.get(key)
        if node is None:
            if self._nodes >= MAX_NODES:
                self._say(OVERFLOW, f"more than {MAX_NODES} places; later ones are folded into {OVERFLOW!r}")
                # One for the whole tree: a place for them below each parent would again be without end.
                return self.root.children.setdefault(OVERFLOW, Node(OVERFLOW, scope.kind, scope.average, self.root))
            self._nodes += 1
            node = above.children.setdefault(key, Node(key, scope.kind, scope.average, above))
        if node is not above and node.kind != scope.kind:
            self._say_conflict(node, scope)
        else:
            above.places[scope.place] = node
        return node

    def _say_conflict(self, node: Node, scope: Scope) -> None:
        place = "/".join(_path(node))
        problem = f"{place!r} is shown as {node.kind}, the first use; {scope.kind} there is ignored"
        if self.strict:
            raise ValueError(f"{self.name}: {problem}") from None
        self._say(place, problem)

    def _say(self, what: str, problem: str) -> None:
        if what not in self._said:
            import logging

            self._said.add(what)
            logging.getLogger("gpuprof.timing").warning("%s: %s", self.name, problem)


def _path(node: Node) -> list[str]:
    above = node.parent
    return [] if above is None else [*_path(above), node.key]


def _recording_of(timing: Timing) -> Recording:
    return timing._recording

"""The recording half of a `Timing`: the tree, and the place of the running code in it."""

from __future__ import annotations

import itertools
import sys
import weakref
from contextvars import ContextVar

from gpuprof_timing import _spans, _torch
from gpuprof_timing._compiled import hot, slots_in_c
from gpuprof_timing._cursor import NOBODY, Cursor, fixed_cursor
from gpuprof_timing._linked import make_linked
from gpuprof_timing._node import Node, forget
from gpuprof_timing._off import get_off_cursor
from gpuprof_timing._scope import AverageScope, LastScope, NoScope, OffScope, Scope, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuprof_timing._device import DeviceTimes
    from gpuprof_timing._spans import Key

MAX_NODES = 10_000
"""The most places in one tree, so that keys made from data cannot fill the memory."""
MAX_DEPTH = 100
"""The deepest place in a tree: readers of JSON stop at 256 levels, and a place takes two."""
OVERFLOW = "(more)"
"""The key under which later and deeper places are folded."""
_CANNOT_RAISE: tuple[Any, ...] = (str.__eq__, object.__eq__, int.__eq__)
"""How strings, members of an `Enum` and most objects compare."""
_SPARE = 64
"""Keys that a place remembers in addition to two for each of its children."""
_NO_KEY: Any = None  # the root's: equal to no key
_modules = sys.modules
_add_time: Any = hot and hot.add_time


_free: list[tuple[ContextVar[Cursor], Scope]] = []
"""Context variables of discarded trees, each with its top scope, for reuse by new trees.

A context never releases a variable that was set in it, nor its value. A tree that reuses a variable
finds its own top above the old value.
"""
_epochs = itertools.count()


@slots_in_c
class Recording:
    """The half of `Timing` that scopes use.

    A class of its own because `Timing` finds keys as attributes: attributes of a class with
    `__getattr__` are slow, and a scope reads six of them. Contexts can hold scopes, and so this,
    forever; anything large ends with the `Timing`.

    Attributes:
        root: the tree's root.
        top: the scope that is open in it, and that every chain of parents leads to.
        shape: a new object whenever a place is added; caches of the tree are keyed by it.
        epoch: the tree's id, unique in this process.
        clock: see `Timing`, like `name` and `strict`.
        enabled: see `Timing`. Set by `switch`.
        device_times: times on the GPU; ``None`` until requested.
        get_cursor: returns the cursor of the running code, or the one for scopes switched off.
        set_cursor: sets the cursor of the running code.
        moving: the cursors that their threads may move, by id.
    """

    __slots__ = (
        "__weakref__", "_nodes", "_off", "_said", "_timing", "_variable", "_without_device",
        "clock", "device_times", "enabled", "epoch", "get_cursor", "moving", "name",
        "root", "set_cursor", "shape", "strict", "top",
    )  # fmt: skip
    get_cursor: Callable[[], Cursor]
    set_cursor: Callable[[Cursor], object]
    root: Node
    top: Scope

    def __init__(
        self,
        timing: object,
        name: str,
        clock: Callable[[], int],
        enabled: bool,
        strict: bool,
        device_times: DeviceTimes | None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.strict = strict
        self.device_times = device_times
        self._without_device = False
        self._off: dict[object, OffScope] = {}
        self.moving: weakref.WeakValueDictionary[int, Cursor] = weakref.WeakValueDictionary()
        try:
            self._variable, self.top = _free.pop()
        except IndexError:
            self.top = Scope()
            self._variable = ContextVar("gpuprof_timing", default=fixed_cursor(self.top))  # noqa: B039 - nobody may move it
        self.set_cursor = self._variable.set
        self._plant()
        self.switch(enabled)
        self._timing = weakref.ref(timing, self._end)
        _spans.recordings[id(self)] = self

    def _plant(self) -> None:
        # What is open still has its node in the old tree, if there was one. `find_node` leads from
        # there to this one.
        self.root = self.top.node = Node(_NO_KEY, "add_time", 0, None)
        self.shape = object()
        self.epoch = next(_epochs)
        self._nodes = 0
        self._said: set[str] = set()

    def begin(self) -> None:
        """Start an empty tree. Open scopes belong to the old tree and end there."""
        old = self.root
        self._plant()
        forget(old)
        for reference in self.moving.valuerefs():
            cursor = reference()
            if cursor is not None:  # whoever copied it must not follow its thread into the new tree
                cursor.owner, cursor.track, cursor.scope = NOBODY, None, self.top
        if self.device_times is not None:
            self.device_times.forget()

    def switch(self, enabled: bool) -> None:
        """Switch scopes on or off, for those entered from now on."""
        self.enabled = bool(enabled)
        self.get_cursor = self._variable.get if enabled else get_off_cursor

    def _end(self, _: object, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Release the tree, as nothing can read it any more.

        Leftover scopes then only open ranges and hold nothing large.
        """
        if is_finalizing():
            return  # what this calls may be gone
        self.get_cursor = get_off_cursor
        self._off.clear()
        self.begin()
        self.device_times = None
        _free.append((self._variable, self.top))

    @property
    def timing(self) -> object | None:
        """Its `Timing`; ``None`` once that is gone."""
        return self._timing()

    # Scopes: see `Timing`

    def add_time(
        self,
        name: str,
        device: str | None = None,
        waits_for: str | None = None,
        key: Key | None = None,
    ) -> Scope:
        """A scope whose durations are summed."""
        if device is not None or waits_for is not None or key is not None:
            return self._special_scope(name, device, waits_for, key)
        if "torch" in _modules and _torch.is_compiling():
            return NoScope()
        if not self.enabled:
            try:
                return self._off[name]
            except KeyError:
                return self._off_scope(name, make(Scope, self, name))
        # `make(Scope, self, name)`, written out: one call less in the scope that hot loops use.
        scope = Scope()
        scope.recording = self
        scope.place = name
        scope.node = None
        scope._crosses_tasks = False
        return scope

    def fast_add_time(
        self,
        name: str,
        device: str | None = None,
        waits_for: str | None = None,
        key: Key | None = None,
    ) -> Scope:
        """`add_time` in C, as far as torch's compiler can follow, which makes no object there."""
        if "torch" in _modules and _torch.is_compiling():
            return self.add_time(name, device, waits_for, key)
        return _add_time(self, name, device, waits_for, key)  # type: ignore[no-any-return]

    if hot is None:
        fast_add_time = add_time

    def timeit(self, name: str) -> Scope:
        """A scope that shows its last duration."""
        if "torch" in _modules and _torch.is_compiling():
            return NoScope()
        place = ("timeit", name)
        if not self.enabled:
            return self._off.get(place) or self._off_scope(place, make(LastScope, self, place))
        return make(LastScope, self, place)

    def time_avg(self, name: str, average: int) -> Scope:
        """A scope that shows the mean of its last `average` durations."""
        if average < 1:
            raise ValueError(f"average={average!r}: expected at least 1")
        if "torch" in _modules and _torch.is_compiling():
            return NoScope()
        if not self.enabled and (off := self._off.get(("time_avg", name, average))):
            return off
        scope = make(AverageScope, self, ("time_avg", name))
        scope.average = average
        return scope if self.enabled else self._off_scope(("time_avg", name, average), scope)

    def _off_scope(self, what: object, scope: Scope) -> Scope:
        """The stand-in for a scope that is switched off; cached, to cost next to nothing."""
        off = OffScope.of(scope)
        if len(self._off) < MAX_NODES and _compares(what):
            self._off[what] = off
        return off

    def _special_scope(
        self, name: str, device: str | None, waits_for: str | None, key: Key | None
    ) -> Scope:
        if device is not None and device != "cuda":
            raise ValueError(f"device={device!r}: expected 'cuda'")
        if "torch" in _modules and _torch.is_compiling():
            return NoScope()
        if device is not None:
            if waits_for is not None or key is not None:
                raise ValueError(
                    f"device={device!r}: not together with waits_for or key; nest two scopes"
                )
            return self._device_scope(name, device)
        scope = make_linked(self, name, waits_for, key)
        return scope if self.enabled else OffScope.of(scope)

    def _device_scope(self, key: str, device: str) -> Scope:
        if not self.enabled:
            from gpuprof_timing._device import DeviceScope

            return self._off.get((device, key)) or self._off_scope(
                (device, key), make(DeviceScope, self, key)
            )
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

    def is_in(self, key: str) -> bool:
        """Whether the innermost open scope of this thread or task is one of this key."""
        place = self.get_cursor().scope
        while place.node is None:
            place = place.parent
        return place.node.key == key

    def find_node(self, above: Node, scope: Scope) -> Node:
        """The node of `scope` inside `above`, made if missing.

        Runs once for each place.
        """
        key = scope.key
        root = self.root
        if above.top is not root:  # it was open when this tree began
            above = root
            scope.parent = self.top
        node = above if above.key == key else above.children.get(key)
        if node is None:
            if above.depth >= MAX_DEPTH:
                problem = f"places are more than {MAX_DEPTH} deep; deeper ones are"
                # scopes inside of it find it again, as recursion does
                node = above if above.depth > MAX_DEPTH else self._fold(above, scope, problem)
                _keep(above, scope.place, node)
                return node
            if self._nodes >= MAX_NODES:
                # One for the whole tree: a place for them below each parent would again be without
                # end.
                return self._fold(root, scope, f"more than {MAX_NODES} places; later ones are")
            self._nodes += 1
            node = above.children.setdefault(key, self._new_node(key, scope, above))
            self.shape = object()
        if node is not above and node.kind != scope.kind:
            self._say_conflict(node, scope)
        else:
            _keep(above, scope.place, node)
        return node

    def _new_node(self, key: str, scope: Scope, above: Node) -> Node:
        node = Node(key, scope.kind, scope.average, above)
        node.waits_for, node.linked = scope.waits_for, scope.linked
        node.limit = _spans.room_of(self.clock, node)
        return node

    def _fold(self, above: Node, scope: Scope, problem: str) -> Node:
        """The place in `above` for scopes that get none of their own."""
        self.complain(problem, f"{problem} folded into {OVERFLOW!r}")
        node = above.children.setdefault(OVERFLOW, self._new_node(OVERFLOW, scope, above))
        self.shape = object()
        return node

    def _say_conflict(self, node: Node, scope: Scope) -> None:
        place = "/".join(_path(node))
        problem = f"{place!r} is shown as {node.kind}, the first use; {scope.kind} there is ignored"
        if self.strict:
            raise ValueError(f"{self.name}: {problem}") from None
        self.complain(place, problem)

    def complain(self, what: str, problem: str) -> None:
        """Log a problem with something, once."""
        if what not in self._said:
            import logging

            self._said.add(what)
            logging.getLogger("gpuprof.timing").warning("%s: %s", self.name, problem)


def _path(node: Node) -> list[str]:
    path = []
    while node.parent is not None:
        path.append(node.key)
        node = node.parent
    return path[::-1]


def _keep(above: Node, place: Any, node: Node) -> None:
    """Let the next scope of `place` inside `above` find `node` at once.

    Keys without end, such as a new object each time, start over, so that they fill no memory.
    """
    if _compares(place):
        if len(above.places) > 2 * len(above.children) + _SPARE:
            above.places.clear()
        above.places[place] = node


def _compares(place: Any) -> bool:
    """Whether `place` can be a key of a dict that other scopes look into.

    Its `__eq__` would run, and could raise, in any of them whose key has the same hash.
    """
    parts = place if type(place) is tuple else (place,)
    return all(type(part).__eq__ in _CANNOT_RAISE for part in parts)

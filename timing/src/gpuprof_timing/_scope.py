"""The hot path: what happens when a scope is entered and left. Nothing else lives here."""

from __future__ import annotations

from gpuprof_timing import _range_slot
from gpuprof_timing._decorate import decorate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from gpuprof_timing._decorate import Function
    from gpuprof_timing._node import Kind, Node
    from gpuprof_timing._timing import Timing


class Scope:
    """One stretch of time. Context manager, once at a time; or decorator, for which every call is a scope of its own.

    A scope does not undo what it did to the context on leaving: a generator that is closed late, or in another context, would
    undo it in the wrong place. Each scope knows its parent and whether it is closed, and whoever finds a closed one goes up.
    """

    __slots__ = (
        "_average", "_crosses_tasks", "_key", "_kind", "_range", "_repeats", "_start", "_timing", "closed", "node", "parent",
    )  # fmt: skip

    node: Node
    parent: Scope

    def __init__(self, timing: Timing, key: str, kind: Kind, average: int, crosses_tasks: bool = False) -> None:
        self._timing = timing
        self._key = key
        self._kind: Kind = kind
        self._average = average
        self._crosses_tasks = crosses_tasks
        self._range: AbstractContextManager[object] | None = None
        self.closed = True

    def __enter__(self) -> Scope:
        if not self.closed:
            raise RuntimeError(f"this scope ({self._key!r}) is open; ask the Timing for another one to nest them")
        timing = self._timing
        parent = timing._cursor.get()
        while parent.closed:
            parent = parent.parent
        self.parent = parent
        above = parent.node
        if above.key == self._key and above.parent is not None:
            # Recursion: the outermost scope has the time, every scope counts.
            self.node = above
            self._repeats = True
        else:
            node = above.children.get(self._key)
            if node is None or node.kind != self._kind:
                node = timing._node(above, self._key, self._kind, self._average)
            self.node = node
            self._repeats = False
        self.closed = False
        timing._cursor.set(self)
        if _range_slot.opener is not None:
            self._range = _range_slot.enter(self._key, self._crosses_tasks)
        self._start = timing._clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        timing = self._timing
        now = timing._clock()
        if self._repeats:
            self.node.count += 1
        else:
            self.node.record(now - self._start, now)
        self.closed = True
        if timing._cursor.get() is self:
            parent = self.parent
            while parent.closed:
                parent = parent.parent
            timing._cursor.set(parent)
        if self._range is not None:
            opened, self._range = self._range, None
            _range_slot.leave(opened, (kind, error, trace))

    def __call__(self, function: Function) -> Function:
        """Time every call of `function`; of a coroutine function, from the call's start to its end, awaiting included."""
        timing, key, kind, average = self._timing, self._key, self._kind, self._average
        return decorate(function, lambda crosses_tasks: Scope(timing, key, kind, average, crosses_tasks))

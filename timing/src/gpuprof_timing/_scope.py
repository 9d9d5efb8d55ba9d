"""The hot path: entering and leaving a scope, and nothing else.

All writes to a node happen without a call in between: under the global lock, no other thread runs
in the middle.
"""

from __future__ import annotations

from _thread import get_ident

from gpuprof_timing import _cursor, _range_slot, _spans
from gpuprof_timing._compiled import hot, in_python, methods_in_c
from gpuprof_timing._cursor import modules
from gpuprof_timing._decorate import decorate
from gpuprof_timing._node import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any, Protocol, TypeVar

    from gpuprof_timing._cursor import Cursor, Place
    from gpuprof_timing._decorate import Arguments, Function
    from gpuprof_timing._node import Kind, Node
    from gpuprof_timing._spans import Key, Track

    class Recording(Protocol):
        """A scope's view of `gpuprof_timing._recording.Recording`."""

        clock: Callable[[], int]
        enabled: bool
        device_times: Any
        get_cursor: Callable[[], Cursor]
        set_cursor: Callable[[Cursor], object]
        top: Scope

        @property
        def moving(self) -> MutableMapping[int, Cursor]: ...
        def add_time(
            self,
            name: str,
            device: str | None = None,
            waits_for: str | None = None,
            key: Key | None = None,
        ) -> Scope: ...
        def fast_add_time(self, name: str) -> Scope: ...
        def timeit(self, name: str) -> Scope: ...
        def time_avg(self, name: str, average: int) -> Scope: ...
        def complain(self, what: str, problem: str) -> None: ...
        def find_node(self, above: Node, scope: Scope) -> Node: ...
        def is_in(self, key: str) -> bool: ...

    Self = TypeVar("Self", bound="Scope")
    AnyScope = TypeVar("AnyScope", bound="Scope")

_recorder = _spans.recorder
if hot is not None:
    hot.bind(_recorder, _spans.task_track, _cursor.IN_LOOP, _range_slot.enter, _range_slot.leave)


@methods_in_c
class Scope:
    """A timed scope.

    A context manager, entered once at a time; or a decorator, with a scope of its own for every
    call.

    Leaving a scope only marks it and changes no context, as a generator that is closed late, or in
    another context, would change the wrong one. The next scope to enter finds the marked scope at
    the cursor and goes up to the nearest open ancestor.

    Attributes:
        place: the key of the scope's node in its parent: for `add_time`, by far the most common,
            the key alone. See `KindScope`.
        node: the node that gets the time; ``None`` unless the scope is open.
        started: the clock's nanoseconds; ``None`` in recursion, where the outermost scope counts
            the time.
        track: the thread or task in which it began, for spans; ``None`` if nothing recorded them.
        waits_for: whom it waits for; see `gpuprof_timing.Timing.add_time`.
        linked: whether it may have a key that others know.
    """

    __slots__ = (
        "_crosses_tasks", "_range", "node", "parent", "place", "recording", "started", "track",
    )  # fmt: skip

    kind: Kind = "add_time"
    average = 0
    waits_for: str | None = None
    linked = False
    recording: Recording
    place: Any
    node: Node | None
    parent: Place
    started: int | None
    track: Track | None
    _crosses_tasks: bool
    _range: AbstractContextManager[object] | None

    @property
    def key(self) -> str:
        """Its name."""
        return text_of(self.place)

    def __enter__(self: Self) -> Self:
        if self.node is not None:
            raise RuntimeError(
                f"this scope ({self.key!r}) is open; ask the Timing for another one to nest them"
            )
        # until it is known: another thread, or a signal, may look at any moment
        self.started = None
        self._range = None
        self.track = None
        recording = self.recording
        # what is called is a variable, here and below: an attribute of a slot is slow to call
        get_cursor = recording.get_cursor
        cursor = get_cursor()
        parent = cursor.scope
        above = parent.node
        while above is None:
            parent = parent.parent
            above = parent.node
        self.parent = parent
        try:
            node = above.places[self.place]
        except KeyError:
            node = recording.find_node(above, self)
        try:
            self.node = node
            is_owner = cursor.owner._is_owned()  # type: ignore[attr-defined]
            if is_owner and ("asyncio" not in modules or _cursor.running_loop() is None):
                cursor.scope = self
                self.track = cursor.track
            elif cursor.owner is not _cursor.ANYBODY:
                if cursor.owner is _cursor.IN_LOOP:
                    cursor = _cursor.fixed_cursor(self, _cursor.IN_LOOP)
                else:
                    cursor = _cursor.new_cursor(self)
                recording.set_cursor(cursor)
                if _recorder.interval is not None:
                    self.track = _spans.task_track()
            # a scope that is kept can be switched off and be entered
            if _range_slot.opener is not None and recording.enabled:
                # mostly the place is the key; the property costs as much as all else here
                place = self.place
                self._range = _range_slot.enter(
                    place if type(place) is str else self.key, self._crosses_tasks
                )
            # else it is recursion: the outermost scope has the time, every scope counts
            if node is not above:
                clock = recording.clock
                self.started = clock()
                node.latest = self
            # last: nothing after a call can be interrupted, so this scope is entered or it is not
            node.entered += 1
        except BaseException as error:  # a signal's handler has raised: no `with` will leave this
            self._abandon(error)
            raise
        return self

    def _abandon(self, error: BaseException) -> None:
        self.node = None
        if self._range is not None:
            _range_slot.leave(self._range, type(error), error, error.__traceback__)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording = self.recording
        clock = recording.clock
        try:
            now = clock()
        except BaseException:  # a signal's handler has raised: leave now, nothing else will
            Scope.__exit__(self, kind, error, trace)
            raise
        node = self.node
        if node is None:
            return  # not entered, or left already
        self.node = None
        node.count += 1
        start = self.started
        room: int | None = None
        if start is not None:
            duration = now - start
            node.total += duration
            node.last = duration
            node.squares += duration * duration
            if duration < node.minimum:
                node.minimum = duration
            if duration > node.maximum:
                node.maximum = duration
            interval = _recorder.interval
            if interval is not None:
                if node.interval is interval:
                    room = node.room
                else:
                    node.interval = interval
                    room = node.limit
                if room:
                    node.room = room - 1
                elif room is not None:
                    if not node.folded:
                        node.since = start
                        room = -1  # the first one
                    elif start < node.since:
                        node.since = start
                    node.folded += 1
                    node.busy += duration
                    node.until = now
                    node.track = self.track
            if node.window is not None:
                node.window.append(duration)
        if self.parent.node is None:
            self._skip_closed_parents()
        if self._range is not None:
            _range_slot.leave(self._range, kind, error, trace)
        # last: a signal's handler may raise in what is called here
        if room:
            if room > 0:
                # bound first: from here to the end of the call no other thread runs
                track = self.track or get_ident()
                add = _recorder.add
                add((node, start, now, track))
                if _recorder.crowd and node.depth == 1:
                    _recorder.end_top_level()
            else:
                _recorder.crowd.append(node)

    def _skip_closed_parents(self) -> None:
        """Scopes that overlap hand over hand would otherwise each keep the one before."""
        parent = self.parent
        while parent.node is None:
            parent = parent.parent
            if parent is self:  # it was left, and entered again below a scope that it was around
                parent = self.recording.top
        self.parent = parent

    def __call__(self, function: Function) -> Function:
        """Time every call of `function`.

        See `gpuprof_timing.Timing` on coroutines and generators.
        """
        return decorate(function, self._another, self.recording)

    def _another(self, crosses_tasks: bool, arguments: Arguments) -> Scope:
        scope = self.recording.fast_add_time(self.place)
        scope._crosses_tasks = crosses_tasks
        return scope

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """A scope that is not open, as a decorated function takes it to another process.

        Written out because pickle does not see the fields of a C type.
        """
        names = {"recording", "place", "_crosses_tasks"}
        for cls in type(self).__mro__:
            names.update(vars(cls).get("__slots__", ()))
        names -= {"node", "parent", "started", "track", "_range"}
        state = {name: getattr(self, name) for name in sorted(names) if hasattr(self, name)}
        return None, {**state, "node": None}


class KindScope(Scope):
    """A scope of another kind than `add_time`.

    Its place includes the kind, so it never finds a node of another kind.
    """

    __slots__ = ()

    @property
    def key(self) -> str:
        """Its name."""
        return text_of(self.place[1])


class LastScope(KindScope):
    """A scope that shows its last duration."""

    __slots__ = ()
    kind = "timeit"

    def _another(self, crosses_tasks: bool, arguments: Arguments) -> Scope:
        scope = self.recording.timeit(self.place[1])
        scope._crosses_tasks = crosses_tasks
        return scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        node = self.node
        super().__exit__(kind, error, trace)
        if node is not None:
            node.ended = self.recording.clock()


class AverageScope(KindScope):
    """A scope that shows the mean over a window."""

    __slots__ = ("average",)
    kind = "time_avg"
    average: int

    def _another(self, crosses_tasks: bool, arguments: Arguments) -> Scope:
        scope = self.recording.time_avg(self.place[1], self.average)
        scope._crosses_tasks = crosses_tasks
        return scope


def make(of: type[AnyScope], recording: Recording, place: Any) -> AnyScope:
    """Make a scope that is not open.

    Replaces ``__init__``, whose call would double the cost.
    """
    scope = of()
    scope.recording = recording
    scope.place = place
    scope.node = None
    scope._crosses_tasks = False
    return scope


Traceable = Scope
if not TYPE_CHECKING:
    Traceable = in_python(Scope)  # torch's compiler makes no object of a C type


class NoScope(Traceable):
    """A context manager and decorator that does nothing."""

    __slots__ = ()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def __call__(self, function: Function) -> Function:
        """Leave `function` as it is."""
        return function


class OffScope(NoScope):
    """The stand-in for a scope while switched off.

    A function decorated with it checks the switch at every call.
    """

    __slots__ = ("_on",)
    _on: Scope

    @classmethod
    def of(cls, scope: Scope) -> OffScope:
        """Make the stand-in for `scope`."""
        off = make(cls, scope.recording, scope.place)
        off._on = scope
        return off

    def __call__(self, function: Function) -> Function:
        """Time every call of `function` while scopes are switched on."""
        return self._on(function)

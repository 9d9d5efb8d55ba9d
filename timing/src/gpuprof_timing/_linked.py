"""Scopes that wait for work elsewhere, or whose end others wait for."""

from __future__ import annotations

from _thread import get_ident

from gpuprof_timing import _spans
from gpuprof_timing._compiled import hot
from gpuprof_timing._node import text_of
from gpuprof_timing._scope import Scope, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from gpuprof_timing._decorate import Arguments
    from gpuprof_timing._scope import Recording
    from gpuprof_timing._spans import Key

_ROLES: dict[str | None, str] = {None: "releases", "nothing": "releases", "barrier": "meets"}
"""What a key does, by what its scope waits for; with anything else it waits."""
KEY = 8
"""Bytes of an id that make a key that the ledger has as it is."""
NOT_RANDOM = b"\xff" * KEY
"""What ids begin with that are alike in their first bytes: all others begin with random ones."""


class LinkedScope(Scope):
    """A scope with a key that the other side of a wait knows, too.

    Attributes:
        link: the key; ``None`` if there is none.
    """

    __slots__ = ("link", "waits_for")

    linked = True
    link: Key | None

    def _another(self, crosses_tasks: bool, arguments: Arguments) -> Scope:
        link = key_of_call(self.link, arguments)
        scope = self.recording.add_time(self.place, None, self.waits_for, link)
        scope._crosses_tasks = crosses_tasks
        return scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            node = self.node
            if _spans.recorder.interval is not None and node is not None:
                if not node.linked:  # a plain scope made it
                    node.linked, node.waits_for = True, self.waits_for
                    node.limit = _spans.room_of(self.recording.clock, node)
                link = self.link
                plain = type(link) is str or type(link) is bytes
                keys = (link,) if plain else self._keys(complain=kind is None)
                if keys:
                    waits_for, track = self.waits_for, self.track
                    role = _ROLES.get(waits_for, "waits")
                    self.track = _spans.Linked(track or get_ident(), role, keys)  # type: ignore[arg-type]
        finally:
            super().__exit__(kind, error, trace)

    def _keys(self, complain: bool) -> tuple[str | bytes, ...]:
        """The keys; none if the user's function fails, which must not end the job."""
        try:
            link: Any = self.link
            if callable(link):
                link = link()
            if link is None:
                return ()
            links = link if isinstance(link, tuple) else (link,)
            return tuple([link if type(link) is bytes else text_of(link) for link in links])
        except Exception as fault:
            if complain:  # else it may be the scope's own exception that leaves nothing to look at
                self.recording.complain(
                    f"key of {self.key}",
                    f"{self.key!r} has no key in the ledger: {type(fault).__name__}: {fault}",
                )
            return ()


def key_of_call(key: Key | None, arguments: Arguments) -> Key | None:
    """The key of one call of a decorated function."""
    if not callable(key):
        return key
    from functools import partial

    return partial(key, *arguments[0], **arguments[1])


def make_linked(
    recording: Recording, name: str, waits_for: str | None, link: Key | None
) -> LinkedScope:
    """Make a scope that is not open."""
    scope = make(LinkedScope, recording, name)
    scope.waits_for = waits_for
    scope.link = link
    return scope


def call_linked(
    recording: Recording,
    name: str,
    waits_for: str | None,
    key: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    on_fault: Callable[[Exception], object],
) -> Any:
    """Call a function inside a linked scope. Raises what the function raises, and nothing else.

    A call that does not wait has no scope of its own inside one of the same name.

    Args:
        recording: the tree's.
        key: a text, bytes, a tuple of several, or ``None``; or makes one of the function's result.
        on_fault: gets the error if the scope or its key fails.
    """
    scope = None
    try:
        if recording.enabled and (waits_for is not None or not recording.is_in(name)):
            scope = make_linked(recording, name, waits_for, None)
            scope.__enter__()
    except Exception as error:
        scope = None
        on_fault(error)
    if scope is None:
        return function(*args, **kwargs)
    try:
        result = function(*args, **kwargs)
    except BaseException as error:
        scope.__exit__(type(error), error, error.__traceback__)
        raise
    try:
        scope.link = key(result) if callable(key) else key
    except Exception as error:
        on_fault(error)
    scope.__exit__(None, None, None)
    return result


class KeyOf:
    """Makes the keys of calls out of objects that have the calls' ids.

    In C, because between two calls the job waits for another process, and the memory that Python
    needs for each line leaves the processor's caches.

    Args:
        kind: the type of the objects.
        id_of: returns the id of such an object, in bytes.
        otherwise: makes the keys of all other objects, and of ids that begin with `NOT_RANDOM`.

    Attributes:
        is_short: whether the first `KEY` bytes of an id are a key. If not, `otherwise` makes all.

    >>> from uuid import UUID
    >>> key_of = KeyOf(UUID, lambda uuid: uuid.bytes, str)
    >>> key_of(UUID(bytes=b"sixteen of bytes")), key_of(7)
    (b'sixteen ', '7')
    """

    def __init__(
        self, kind: type, id_of: Callable[[Any], bytes], otherwise: Callable[[Any], Any]
    ) -> None:
        self.kind = kind
        self.is_short = True
        self._id_of = id_of
        self._otherwise = otherwise

    def __call__(self, thing: Any) -> Any:
        """The key of an object."""
        if self.is_short and type(thing) is self.kind:
            key = self._id_of(thing)[:KEY]
            if key != NOT_RANDOM:
                return key
        return self._otherwise(thing)


def link_calls(
    function: Callable[..., Any],
    recording: Recording,
    name: str,
    waits_for: str | None,
    key_of: KeyOf,
    other: Callable[..., Any],
    on_fault: Callable[[Exception], object],
) -> Callable[..., Any]:
    """A function that calls `function` inside a linked scope.

    In C for the reason of `KeyOf`. It is pickled by its name, as functions are, which its user has
    to set.

    Args:
        function: the function in whose place it is.
        recording: the tree's.
        key_of: makes the key of the first argument.
        other: called where the first argument is not of `key_of`'s kind.
        on_fault: see `call_linked`.
    """

    def linked(*args: Any, **keywords: Any) -> Any:
        if not args or type(args[0]) is not key_of.kind:
            return other(*args, **keywords)
        try:
            key = key_of(args[0])
        except Exception as error:
            on_fault(error)
            return function(*args, **keywords)
        return call_linked(recording, name, waits_for, key, function, args, keywords, on_fault)

    return linked


def follow(
    function: Callable[..., Any],
    clock: Callable[[], int],
    then: Callable[..., object],
    key_of: KeyOf | None = None,
    note: Callable[[int, Any, tuple[()]], object] | None = None,
) -> Callable[..., Any]:
    """A method that calls `function`, and afterwards `then`.

    In C, as many keywords take long to be put into a mapping and out of it again.

    Args:
        function: the method in whose place it is.
        clock: returns nanoseconds.
        then: gets the time before the call, what the function has returned, and its arguments and
            its keywords. For these it may get ``None`` where there are two arguments at most, and
            the keywords ``args`` and ``kwargs`` are empty.
        key_of: makes the key that `note` gets.
        note: called instead of `then` where there are no such arguments, and the result is of
            `key_of`'s kind: gets the time, the result's key, and an empty tuple. If it fails,
            `then` is called after all.
    """

    def followed(*args: Any, **keywords: Any) -> Any:
        start = clock()
        result = function(*args, **keywords)
        has_arguments = len(args) > 2 or keywords.get("args") or keywords.get("kwargs")
        if note and key_of and not has_arguments and type(result) is key_of.kind:
            try:
                note(start, key_of(result), ())
            except Exception:
                pass  # `then` knows what to do
            else:
                return result
        then(start, result, args, keywords)
        return result

    return followed


if hot is not None:
    follow, link_calls = hot.Followed, hot.LinkedCalls
    KeyOf = hot.KeyOf  # type: ignore[misc]  # the same in C
    hot.specify_call(call_linked)
    call_linked = hot.call_linked

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


def follow(
    function: Callable[..., Any], clock: Callable[[], int], then: Callable[..., object]
) -> Callable[..., Any]:
    """A method that calls `function`, and afterwards `then`.

    In C, as many keywords take long to be put into a mapping and out of it again.

    Args:
        function: the method in whose place it is.
        clock: returns nanoseconds.
        then: gets the time before the call, what the function has returned, and its arguments and
            its keywords. For these it may get ``None`` where there are two arguments at most, and
            the keywords ``args`` and ``kwargs`` are empty.
    """

    def followed(*args: Any, **keywords: Any) -> Any:
        start = clock()
        result = function(*args, **keywords)
        then(start, result, args, keywords)
        return result

    return followed


if hot is not None:
    follow = hot.Followed
    hot.specify_call(call_linked)
    call_linked = hot.call_linked

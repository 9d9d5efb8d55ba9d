"""Where in the tree the running code is.

A context variable holds the cursor, so that every thread and every asyncio task has its own, and a
task starts where the code that made it was. Setting a context variable makes a scope two thirds
dearer, so plain threads set it once and then move the cursor that it holds: no other code can see
it move but code that runs in a copy of the context, in another thread, and that makes itself a
cursor of its own when it opens its first scope. In an event loop copies are made all the time, and
each scope sets a new cursor.
"""

from __future__ import annotations

import sys
from _thread import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any, Protocol

    from gpuprof_timing._node import Node

    class Tree(Protocol):
        """What a cursor sees of what scopes write to."""

        @property
        def moving(self) -> MutableMapping[int, Cursor]: ...

    class Place(Protocol):
        """What a cursor sees of a scope."""

        node: Node | None

        @property
        def parent(self) -> Place: ...
        @property
        def recording(self) -> Tree: ...


modules = sys.modules


class Cursor:
    """A place in the tree.

    Attributes:
        scope: the innermost scope, open or not: whoever finds a closed one goes up.
        owner: held by the thread that may move this cursor. A lock knows whether this thread holds
            it in a third of the time that it takes to ask for the thread's number and compare it.
    """

    __slots__ = ("__weakref__", "owner", "scope")
    scope: Place
    owner: RLock


NOBODY = RLock()
"""Held by no thread."""


class _Anybody:
    def _is_owned(self) -> bool:
        return True


ANYBODY: Any = _Anybody()
"""Held by every thread: the owner of the cursor that scopes find while they are switched off, and
leave where it is."""


def new_cursor(scope: Place) -> Cursor:
    """A cursor at `scope` for the context that runs now."""
    if "asyncio" in modules and running_loop() is not None:
        return fixed_cursor(scope)
    cursor = Cursor()
    cursor.scope = scope
    cursor.owner = RLock()
    cursor.owner.acquire()
    scope.recording.moving[id(cursor)] = cursor
    return cursor


def fixed_cursor(scope: Place) -> Cursor:
    """A cursor that nobody may move."""
    cursor = Cursor()
    cursor.scope = scope
    cursor.owner = NOBODY
    return cursor


def _find_running_loop() -> Any:
    """Called while asyncio is there, which takes longer to import than all of this."""
    global running_loop
    running_loop = getattr(modules["asyncio"], "_get_running_loop", _no_loop)
    return running_loop()


def _no_loop() -> None:
    """While asyncio is being imported."""


running_loop: Callable[[], Any] = _find_running_loop

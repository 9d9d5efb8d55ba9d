"""The place of the running code in the tree.

A context variable holds the cursor: every thread and every asyncio task has its own, and a task
starts at the place of the code that made it.

Setting a context variable makes a scope two thirds slower, so plain threads set it once and then
move the cursor that it holds. Only code in a copy of the context can see it move; in another
thread, such code makes a cursor of its own when it opens its first scope, below the scope that the
copying thread has open at that moment. Event loops copy contexts all the time, so there each scope
sets a new cursor. Leaving a scope marks it and sets nothing, because a generator may be closed late
or in another context.
"""

from __future__ import annotations

import sys
from _thread import RLock, get_ident

from gpuprof_timing._compiled import slots_in_c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any, Protocol

    from gpuprof_timing._node import Node

    class Tree(Protocol):
        """A cursor's view of a `Recording`."""

        @property
        def moving(self) -> MutableMapping[int, Cursor]: ...

    class Place(Protocol):
        """A cursor's view of a scope."""

        node: Node | None

        @property
        def parent(self) -> Place: ...
        @property
        def recording(self) -> Tree: ...


modules = sys.modules


@slots_in_c
class Cursor:
    """A place in the tree.

    Attributes:
        scope: the innermost scope; if it is closed, its nearest open ancestor counts.
        owner: a lock held by the thread that may move this cursor. Checking it takes a third of the
            time of comparing thread ids.
        track: the id of that thread.
    """

    __slots__ = ("__weakref__", "owner", "scope", "track")
    scope: Place
    owner: RLock
    track: int | None


NOBODY = RLock()
"""Held by no thread."""
IN_LOOP = RLock()
"""Held by no thread either: owns the cursors that were made while an event loop ran.

A scope that finds one makes the next without asking for the loop again, which takes as long as half
a scope. In a thread without a loop that is slower, and as right.
"""


class _Anybody:
    def _is_owned(self) -> bool:
        return True


ANYBODY: Any = _Anybody()
"""A lock that every thread seems to hold: owns the cursor of scopes that are switched off."""


def new_cursor(scope: Place) -> Cursor:
    """A cursor at `scope` for the current context."""
    if "asyncio" in modules and running_loop() is not None:
        return fixed_cursor(scope, IN_LOOP)
    cursor = Cursor()
    cursor.scope = scope
    cursor.owner = RLock()
    cursor.owner.acquire()
    cursor.track = get_ident()
    scope.recording.moving[id(cursor)] = cursor
    return cursor


def fixed_cursor(scope: Place, owner: RLock = NOBODY) -> Cursor:
    """A cursor that no thread may move."""
    cursor = Cursor()
    cursor.scope = scope
    cursor.owner = owner
    cursor.track = None
    return cursor


def _find_running_loop() -> Any:
    """Called while asyncio is there, which takes longer to import than all of this."""
    global running_loop
    running_loop = getattr(modules["asyncio"], "_get_running_loop", _no_loop)
    return running_loop()


def _no_loop() -> None:
    """While asyncio is being imported."""


running_loop: Callable[[], Any] = _find_running_loop

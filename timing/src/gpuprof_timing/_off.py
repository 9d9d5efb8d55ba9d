"""The place of scopes that are entered while switched off.

A kept scope may be switched off after it was made, but a check on entering would slow every scope.
Instead it finds another cursor here, whose only place contains itself: the scope takes itself for a
recursion, which counts no time, and moves nothing. The scope goes by the cursor that it found, as
another thread may switch at any moment.
"""

from __future__ import annotations

from gpuprof_timing._cursor import ANYBODY, Cursor
from gpuprof_timing._node import Node
from gpuprof_timing._scope import Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuprof_timing._cursor import Place


class _Anything(dict["Any", Node]):
    def __missing__(self, place: object) -> Node:
        return _node


class _OffCursor(Cursor):
    """A cursor that any thread may move, without effect."""

    __slots__ = ()

    @property
    def scope(self) -> Place:
        return _scope

    @scope.setter
    def scope(self, scope: Place) -> None:
        pass


_node = Node("", "add_time", 0, None)
_node.places = _Anything()
_scope = Scope()
_scope.node = _node
_cursor = _OffCursor()
_cursor.owner = ANYBODY
_cursor.track = None


def get_off_cursor() -> Cursor:
    """Replaces a context variable's `get`."""
    return _cursor

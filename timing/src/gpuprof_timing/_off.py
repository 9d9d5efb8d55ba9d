"""Where scopes are that are entered while they are switched off: at a place of which every place is
the same.

A scope that is kept may be switched off after it was made. Were it asked on its way in whether it
is, every scope would pay for it. So it is the cursor that is another one: scopes find themselves in
a recursion, which takes no time, and move nothing. What a scope does follows from the cursor that
it has found, as another thread may switch at any moment.
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
    """Anybody may move it, and it stays."""

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


def get_off_cursor() -> Cursor:
    """In place of a context variable's `get`."""
    return _cursor

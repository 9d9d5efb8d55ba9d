"""What nests in what: a model that is simple to check by eye.

A place in the tree is a path; a scope knows the scope around it; a context knows the scope that it
entered last. Cursors and scopes know their tree, and those of an old one are as if they were not
there.
"""

from __future__ import annotations

from typing import Any

from support.manual_clock import Clock


class ModelScope:
    """A scope, with what is around it. `started` is `None` for recursion."""

    def __init__(
        self, tree: object, path: tuple[str, ...], around: ModelScope | None, started: int | None
    ) -> None:
        self.tree = tree
        self.path = path
        self.around = around
        self.started = started
        self.open = True


class ModelCursor:
    """The place shared by copied contexts, until one enters a scope on its own."""

    def __init__(self, scope: ModelScope, thread: object) -> None:
        self.scope = scope
        self.thread = thread


class ModelContext:
    """What a context variable would hold."""

    def __init__(self, cursor: ModelCursor) -> None:
        self.cursor = cursor

    def copy(self) -> ModelContext:
        return ModelContext(self.cursor)


class Model:
    """The tree as a dictionary from paths to what is known of them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.begin()

    def begin(self) -> None:
        """An empty tree."""
        self.tree = object()
        self.durations: dict[tuple[str, ...], list[int]] = {}
        self.entered: dict[tuple[str, ...], int] = {}
        self.left: dict[tuple[str, ...], int] = {}
        self.latest: dict[tuple[str, ...], ModelScope] = {}
        self.root = ModelCursor(ModelScope(self.tree, (), None, 0), None)

    def context(self) -> ModelContext:
        """One that nothing was entered in."""
        return ModelContext(self.root)

    def enter(self, context: ModelContext, key: str, thread: object) -> ModelScope:
        """Enter in a thread that may move its cursor; `None` for an event loop."""
        if context.cursor.scope.tree is not self.tree:
            context.cursor = self.root
        around = context.cursor.scope
        while not around.open:
            assert around.around is not None
            around = around.around
        if around.path[-1:] == (key,):
            scope = ModelScope(self.tree, around.path, around, None)
        else:
            scope = ModelScope(self.tree, (*around.path, key), around, self.clock.now)
            self.latest[scope.path] = scope
        self.entered[scope.path] = self.entered.get(scope.path, 0) + 1
        if thread is not None and context.cursor.thread == thread:
            context.cursor.scope = scope
        else:
            context.cursor = ModelCursor(scope, thread)
        return scope

    def leave(self, scope: ModelScope) -> None:
        scope.open = False
        if scope.tree is not self.tree:
            return
        self.left[scope.path] = self.left.get(scope.path, 0) + 1
        if scope.started is not None:
            self.durations.setdefault(scope.path, []).append(self.clock.now - scope.started)

    def facts(self) -> dict[tuple[str, ...], tuple[Any, ...]]:
        found = {}
        for path, entered in self.entered.items():
            durations = self.durations.get(path, [])
            latest = self.latest[path]
            found[path] = (
                self.left.get(path, 0),
                sum(durations),
                min(durations, default=None),
                max(durations, default=0),
                sum(duration * duration for duration in durations),
                entered - self.left.get(path, 0),
                self.clock.now - (latest.started or 0) if latest.open else 0,
            )
        return found

"""`annotate`: a profiler range without a place in any tree."""

from __future__ import annotations

from gpuprof_timing import _range_slot
from gpuprof_timing._decorate import decorate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from gpuprof_timing._decorate import Function


class annotate:
    """A range in the profiler's timeline while a capture window is open; nothing otherwise.

    Context manager or decorator.

    Args:
        name: what the timeline shows.
        crosses_tasks: the range may end in another task or thread than it began in. Always true for
            coroutine functions.

    >>> @annotate("load")
    ... def load():
    ...     return 3
    >>> with annotate("inner"):
    ...     load()
    3
    """

    __slots__ = ("_crosses_tasks", "_name", "_opened")

    def __init__(self, name: str, *, crosses_tasks: bool = False) -> None:
        self._name = name
        self._crosses_tasks = crosses_tasks
        self._opened: AbstractContextManager[object] | None = None

    def __enter__(self) -> annotate:
        if _range_slot.opener is not None:
            self._opened = _range_slot.enter(self._name, self._crosses_tasks)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        open_range, self._opened = self._opened, None
        if open_range is not None:
            _range_slot.leave(open_range, kind, error, trace)

    def __call__(self, function: Function) -> Function:
        name = self._name
        return decorate(
            function, lambda crosses_tasks, _: annotate(name, crosses_tasks=crosses_tasks)
        )

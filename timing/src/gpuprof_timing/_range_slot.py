"""The process-wide slot for a function that opens a profiler range for every scope of any `Timing`.

The slot is filled only while a capture window is open. An empty one costs a scope one attribute
look-up.
"""

from __future__ import annotations

from gpuprof_timing._compiled import hot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import TypeAlias

RangeOpener: TypeAlias = "Callable[[str, bool], AbstractContextManager[object]]"
"""Takes a range's name, and whether it may end in another task or thread than it began in."""

opener: RangeOpener | None = None
_on_fault: Callable[[BaseException], None] | None = None


def set_range_opener(
    new: RangeOpener | None, on_fault: Callable[[BaseException], None] | None = None
) -> None:
    """Set the function that opens a profiler's range for each scope; ``None`` removes it.

    Args:
        new: opens a scope's range. Scopes that are already open get none.
        on_fault: gets the first exception of `new` or of a range. The slot is emptied first and the
            scope goes on: a profiler never breaks the job.

    >>> import contextlib
    >>> from gpuprof_timing import Timing, set_range_opener
    >>> set_range_opener(lambda name, crosses_tasks: contextlib.nullcontext(print("range", name)))
    >>> with Timing("t").add_time("forward"):
    ...     pass
    range forward
    >>> set_range_opener(None)
    """
    global opener, _on_fault
    opener, _on_fault = new, on_fault
    if hot is not None:
        hot.open_ranges(new is not None)


def enter(name: str, crosses_tasks: bool) -> AbstractContextManager[object] | None:
    """Open a range; ``None`` if the slot is empty or the opener raises."""
    if opener is None:
        return None
    try:
        context = opener(name, crosses_tasks)
        context.__enter__()
    except BaseException as error:
        if belongs_to_job(error):
            raise
        _fault(error)
        return None
    return context


def leave(
    context: AbstractContextManager[object],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close a range, even if the slot has been emptied since."""
    try:
        context.__exit__(kind, error, trace)
    except BaseException as fault:
        if belongs_to_job(fault):
            raise
        _fault(fault)


def belongs_to_job(error: BaseException) -> bool:
    """Whether an exception out of a profiler's code belongs to the job, and must reach it.

    True for Ctrl-C, and for whatever a signal handler raised while that code ran. Everything else
    is a fault of the profiler: also `sys.exit`, and the panic of a compiled extension, which is no
    `Exception`.
    """
    if isinstance(error, Exception):
        return False
    if isinstance(error, KeyboardInterrupt):
        return True
    import signal

    handlers = {
        getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()
    }
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _fault(error: BaseException) -> None:
    handler = _on_fault
    set_range_opener(None)
    if handler is not None:
        handler(error)
    else:
        import logging

        logging.getLogger("gpuprof.timing").warning(
            "ranges are switched off: %s: %s", type(error).__name__, error
        )

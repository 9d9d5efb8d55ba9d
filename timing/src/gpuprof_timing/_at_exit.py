"""Saving the tree at the end of the process, SIGTERM included.

Installed only on request.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def at_interpreter_end(end: Callable[[], None]) -> None:
    """Call `end` at the interpreter's end, or twice in a process of `multiprocessing`.

    Before Python 3.14, the forks of `multiprocessing`, such as workers of a `DataLoader`, run its
    finalizers but not `atexit`.
    """
    import atexit
    import sys

    atexit.register(end)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, end, exitpriority=0)


def at_exit(leave: Callable[[], None]) -> None:
    """Call `leave` at the interpreter's end, and before it on SIGTERM.

    An existing handler of SIGTERM runs afterwards; without one, the signal ends the process as
    usual. If the handler returns or raises and the process goes on (to finish its step or save a
    checkpoint), `leave` runs again at its end. Outside the main thread Python allows no handlers,
    so only the interpreter's end counts.
    """
    import os
    import signal
    import threading

    process = os.getpid()
    has_left = False
    leaving = False
    waiting = False

    def leave_it() -> None:
        nonlocal leaving, waiting
        if os.getpid() != process:  # a fork has its own, empty tree
            return
        leaving = True
        try:
            leave()
        except Exception as error:
            # A failure here must neither break the job nor keep it from ending.
            import logging

            logging.getLogger("gpuprof.timing").warning(
                "the tree cannot be left behind: %s: %s", type(error).__name__, error
            )
        finally:
            leaving = False
        if waiting:
            waiting = False
            pass_on(signal.SIGTERM, None)

    def end() -> None:
        nonlocal has_left
        if not has_left:
            has_left = True
            leave_it()

    def pass_on(number: int, frame: FrameType | None) -> None:
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def on_terminate(number: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if leaving:
            waiting = True  # the file comes first
        else:
            leave_it()
            pass_on(number, frame)

    before = signal.getsignal(signal.SIGTERM)
    at_interpreter_end(end)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_terminate)

"""Leaving the tree behind when the process ends, also when it is told to end.

Installed only when asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def at_interpreter_end(end: Callable[[], None]) -> None:
    """Call `end` at the interpreter's end; in a process of `multiprocessing` it may be called
    twice.

    What that has forked, as workers of a `DataLoader`, ends without `atexit` before Python 3.14,
    but with finalizers of its own.
    """
    import atexit
    import sys

    atexit.register(end)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, end, exitpriority=0)


def at_exit(leave: Callable[[], None]) -> None:
    """Call `leave` at the interpreter's end, and on SIGTERM before it.

    A handler of SIGTERM that was there is called afterwards; without one the signal ends the
    process as before. If the process goes on, because the handler returns or raises (it finishes
    its step, saves a checkpoint), `leave` is called again at its end. Off the main thread, where
    Python allows no handlers, only the interpreter's end counts.
    """
    import os
    import signal
    import threading

    process = os.getpid()
    ended = False
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
            # Not the job's problem, and no reason not to end.
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
        nonlocal ended
        if not ended:
            ended = True
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

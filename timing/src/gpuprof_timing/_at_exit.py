"""Leaving the tree behind when the process ends, also when it is told to end. Installed only when asked for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def at_exit(leave: Callable[[], None]) -> None:
    """Call `leave` at the interpreter's end, or on SIGTERM, whichever comes first.

    A handler of SIGTERM that was there is called afterwards; without one the signal ends the process as before. If it returns, the
    process goes on (it finishes its step, saves a checkpoint), and `leave` is called again at its end. Off the main thread, where
    Python allows no handlers, only the interpreter's end counts.
    """
    import atexit
    import os
    import signal
    import threading

    process = os.getpid()
    state = "not yet"
    terminated = False

    def once() -> None:
        nonlocal state
        if state != "not yet" or os.getpid() != process:  # a fork has its own, empty tree
            return
        state = "leaving"
        try:
            leave()
        except Exception as error:
            # Not the job's problem, and no reason not to end.
            import logging

            logging.getLogger("gpuprof.timing").warning("the tree cannot be left behind: %s: %s", type(error).__name__, error)
        state = "left"
        if terminated:
            pass_on(signal.SIGTERM, None)

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal state
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        state = "not yet"  # still here: there is more to come

    def on_terminate(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        if state == "leaving":
            terminated = True  # the file comes first
        else:
            once()
            pass_on(number, frame)

    before = signal.getsignal(signal.SIGTERM)
    atexit.register(once)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_terminate)

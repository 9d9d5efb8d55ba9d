"""Leaving the tree behind when the process ends, also when it is told to end. Installed only when asked for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def at_exit(leave: Callable[[], None]) -> None:
    """Call `leave` once: at the interpreter's end, or on SIGTERM, whichever comes first.

    A handler of SIGTERM that was there is called afterwards; without one the signal ends the process as before. Off the main
    thread, where Python allows no handlers, only the interpreter's end counts.
    """
    import atexit
    import os
    import signal
    import threading

    process = os.getpid()
    left = False

    def once() -> None:
        nonlocal left
        if not left and os.getpid() == process:  # a fork has its own, empty tree
            left = True
            leave()

    atexit.register(once)
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)

    def on_terminate(number: int, frame: FrameType | None) -> None:
        once()
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, on_terminate)

"""The first Ctrl-C finishes the run; a second one quits immediately."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType

from gpuprof._log import log


class Interrupts(AbstractContextManager["Interrupts"]):
    """Delays the first interrupt until the block has ended, and lets the second through.

    If the program has its own handler of SIGINT, this does nothing.

    Args:
        pressed: whether the first interrupt has already come, so that the run is being finished.
    """

    def __init__(self, pressed: bool = False) -> None:
        self.twice = False
        self._pressed = pressed
        self._held = False
        self._ours = False

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._ours = True
            signal.signal(signal.SIGINT, self._receive)
            try:
                if self._pressed:
                    self._say()
            except KeyboardInterrupt:  # this is already the second one
                self.__exit__(KeyboardInterrupt, None, None)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._held and kind is None:
            raise KeyboardInterrupt

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            self.twice = True
            raise KeyboardInterrupt
        self._pressed = self._held = True
        self._say()

    def _say(self) -> None:
        log().warning("interrupted: the run is being finished; Ctrl-C again leaves at once")

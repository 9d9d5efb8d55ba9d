"""What the fuzzers share: a limit for one case."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class Hang(BaseException):
    """A case takes so long that it hangs."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise `Hang` in the main thread after `seconds`."""

    def late(*_: object) -> None:
        raise Hang(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

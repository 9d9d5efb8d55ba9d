"""A clock for tests, and no other."""

from __future__ import annotations


class Clock:
    """A clock that only moves when it is told to. Nanoseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

"""In place of a card."""

from __future__ import annotations


class StandInEvents:
    """Replaces CUDA events: the test sets the stream's time and progress."""

    def __init__(self) -> None:
        self.now = 0
        self.passed = 0
        """How many pairs, in the order in which they ended, the GPU has finished."""
        self.possible = True
        self.log: list[str] = []
        self.asked = 0
        """How often a pair was looked at."""
        self._ended = 0

    def begin(self) -> int | None:
        self.log.append("begin")
        return self.now if self.possible else None

    def end(self, begun: int) -> tuple[int, int] | None:
        if not self.possible:
            return None
        self.log.append("end")
        self._ended += 1
        return self._ended, self.now - begun

    def elapsed(self, pair: tuple[int, int]) -> int | None:
        self.asked += 1
        number, duration = pair
        return duration if number <= self.passed else None

    def wait(self, pair: tuple[int, int]) -> None:
        self.log.append(f"wait {pair[0]}")
        self.passed = max(self.passed, pair[0])

    @property
    def waited(self) -> list[str]:
        return [line for line in self.log if line.startswith("wait")]

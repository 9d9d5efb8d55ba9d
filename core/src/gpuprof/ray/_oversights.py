"""What a user has hardly meant: names that no worker of the job has, and actors that were added and never wrapped."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from gpuprof._advice import oversights
from gpuprof._log import log
from gpuprof._plan import PlannedWorker, Planner
from gpuprof.errors import GpuprofError


class Oversights:
    """Says each once: at the first step, as hours may lie between that and the receipt.

    Attributes:
        due: whether there may be something to say.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._unplanned: list[str] = []
        self._said: set[str] = set()
        self.due = True

    def add_unplanned(self, group: str, rank: int) -> None:
        """Take an actor that was added, but not started with our options. It matters if it would have been profiled."""
        with contextlib.suppress(GpuprofError):
            if self._planner.worker(group, rank).profiled:
                self._unplanned.append(f"{group}-{rank}")
                self.due = True

    def say(self, rows: Sequence[PlannedWorker]) -> None:
        """Log what has not been said yet.

        Args:
            rows: the workers that were planned so far.
        """
        self.due = False
        for sentence in [*oversights(self._planner.config, rows), *self._of_unplanned()]:
            if sentence not in self._said:
                self._said.add(sentence)
                log().warning("%s", sentence)

    def faults(self, rows: Sequence[PlannedWorker]) -> list[str]:
        """What belongs in the receipt, too. Names that no worker has only if nobody was profiled: a file may serve many jobs."""
        unmatched = [] if any(row.profiled for row in rows) else oversights(self._planner.config, rows)
        return [*unmatched, *self._of_unplanned()]

    def _of_unplanned(self) -> list[str]:
        names = ", ".join(self._unplanned)
        return [f"{names}: not started with worker_options of this Profiler, so nothing of it is captured"] if names else []

"""The last steps of a running job, read from ledgers that are still growing."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np

from gpuprof._analysis import reading
from gpuprof._analysis.run import Process, Run
from gpuprof._artifacts import ledger as ledger_files
from gpuprof._session.ledger import CLOCK_INTERVAL, LAST_SECONDS
from gpuprof.errors import OutputError

STEPS = 30
"""How many of the last steps an answer is about."""
_KEPT = 3
"""How many times as many steps stay in memory, so that old ones are not dropped one by one."""
_MARGIN = int(1e9)
"""Nanoseconds of rows to keep beyond those steps, because processes write once a second."""
SILENT = 3 * CLOCK_INTERVAL
"""Seconds without a record after which a process is called silent. An idle one notes its clocks."""


class Live:
    """Reads what a run's processes add to their ledgers, and forgets all but the last steps.

    Args:
        seconds: the steps that began in the last so many seconds count, too.
    """

    def __init__(self, directory: Path, steps: int = STEPS, seconds: float = 0.0) -> None:
        self.directory = directory
        self._steps = steps
        self._seconds = seconds
        self.durations: list[float] = []
        """The seconds of each step that has ended, in order."""
        self._last_start = -1
        self._warm_up: int | None = None
        self._readers: dict[Path, ledger_files.Reader] = {}

    def look(self) -> Run | None:
        """The run as of now, in which the last steps count.

        ``None`` until a process has left a ledger.

        Raises:
            ConfigError: the run's files are too large or not valid.
        """
        ledgers, problems = [], []
        for path in ledger_files.paths(self.directory):
            reader = self._readers.setdefault(path, ledger_files.Reader(path))
            try:
                reader.read()
                ledgers.append(reader.ledger())
            except OutputError as error:
                problems.append(str(error))
        if not ledgers:
            return None
        ledger_files.align(ledgers)
        run = reading.of_ledgers(self.directory, ledgers, problems, self._warm_up)
        for step in run.steps:
            if step.complete and step.start > self._last_start:
                self._last_start = step.start
                self.durations.append(step.duration / 1e9)
        since = run.steps[-1].end - int(self._seconds * 1e9) if run.steps else 0
        count = max(self._steps, sum(step.start >= since for step in run.steps))
        if len(run.steps) > _KEPT * count:
            begin = run.steps[-count].start - _MARGIN
            for member in ledgers:
                self._readers[member.path].forget(begin - member.offset)
            self._warm_up = 0
        for position in run.usual[:-count]:
            run.steps[position] = attrs.evolve(run.steps[position], warm_up=True)
        return run


def written(run: Run) -> list[int]:
    """The positions of the steps that count and that no process still has to write.

    Processes write once a second, at different moments. Until the last one has written a step, it
    seems to have worked less than the others.
    """
    lasts = [process.ledger.last + process.ledger.offset for process in run.processes]
    # one that does nothing writes nothing
    until = max(min(lasts), max(lasts) - int(LAST_SECONDS * 1e9))
    return [position for position in run.usual if run.steps[position].end <= until]


@attrs.frozen
class Slowest:
    """The rank of a group that works longest per step, in the median of the steps that count.

    Args:
        others: the median work per step of the other ranks.
    """

    worker: str
    seconds: float
    others: float


def slowest(run: Run, group: str) -> Slowest | None:
    """Find the slowest rank; ``None`` for a group of one, or if no step counts."""
    members, usual = run.groups[group], run.usual
    if len(members) < 2 or not usual:
        return None
    work = np.median(run.work(members)[usual], axis=0) / 1e9
    most = int(np.argmax(work))
    return Slowest(members[most].name, float(work[most]), float(np.median(np.delete(work, most))))


def phases(run: Run, position: int, group: str) -> list[tuple[str, float]]:
    """The scopes in which a group spent a step, and each one's share of the group's time.

    Without the time in scopes inside them, the longest first.
    """
    numbers = [process.number for process in run.groups[group]]
    rows = run.sums[(run.sums["step"] == position) & np.isin(run.sums["process"], numbers)]
    whole = max(1.0, float(run.lengths[position, numbers].sum()))
    sums = np.bincount(rows["place"], rows["own"], len(run.places))
    longest = [place for place in np.argsort(-sums, kind="stable").tolist() if sums[place]]
    return [(run.places[place].path, float(sums[place]) / whole) for place in longest]


@attrs.frozen
class Doing:
    """What a process has been in for a second or longer, and has not ended.

    Args:
        scope: the path of the innermost such scope.
    """

    process: Process
    scope: str
    seconds: float


def doing(run: Run, now: float) -> list[Doing]:
    """What the processes of a run do now, as far as their ledgers tell.

    Leaves out scopes around whole steps, such as one around the training loop.
    """
    begin = max((step.start for step in run.steps if step.complete), default=0)
    current = []
    for process in run.processes:
        ledger = process.ledger
        calls = [call for call in ledger.open.tolist() if call[1] + ledger.offset >= begin]
        if calls and not ledger.ended:
            place, start = max(calls, key=lambda call: (ledger.places[call[0]].depth, call[1]))
            since = now - (start + ledger.offset) / 1e9
            current.append(Doing(process, ledger.places[place].path, max(0.0, since)))
    return current


def silent(run: Run, now: float) -> list[tuple[Process, float]]:
    """The processes that have recorded nothing for `SILENT` seconds, and for how many seconds."""
    silences = [
        (process, now - (process.ledger.last + process.ledger.offset) / 1e9)
        for process in run.processes
        if not process.ledger.ended and process.number not in run.killed
    ]
    return [(process, seconds) for process, seconds in silences if seconds > SILENT]

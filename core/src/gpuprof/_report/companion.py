"""The companion of a run: captures ranks that become slow, and writes metrics of the last step.

``python -m gpuprof._report.companion DIRECTORY PID`` runs beside the job until the process PID
ends. It reads the ledgers in the run's directory, and gives orders as `gpuprof capture` does.
"""

from __future__ import annotations

import fcntl
import glob
import os
import sys
import threading
import time
from pathlib import Path

from gpuprof._analysis.last_step import of_last_step
from gpuprof._analysis.live import Live
from gpuprof._analysis.trigger import SECONDS, STEPS, Suspect, suspect
from gpuprof._artifacts import runs, slow_ranks
from gpuprof._log import log
from gpuprof._report.words import duration, percentage
from gpuprof._session import companion, orders
from gpuprof._shim.processes import process_start
from gpuprof.errors import OutputError

_INTERVAL = 1.0
"""Seconds between two looks: processes write their ledgers as often."""
_MOST_OF_A_CORE = 0.02
"""The share of one core that looking may take. In large runs, looks are rarer. On a busy machine
they are not: what counts is the time on a processor, not the time until there was one."""
_NICE = 5
"""With the lowest priority it gets nothing on a busy machine, and a slow rank goes unseen."""
_COOLDOWN = 60.0
"""Seconds after a capture in which no step counts. They are slower: reports are written."""
_ALIVE = 0.2
"""Seconds between two looks at the job's process."""
_LARGEST_RATIO = 10


def main(directory: str, pid: int) -> None:
    """Look at a job until it ends.

    Args:
        pid: the process with which to end.
    """
    threading.Thread(target=_end_with, args=(pid, process_start(pid)), daemon=True).start()
    os.nice(_NICE)
    with open(os.path.join(directory, ".companion"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another process of the job has started it before
        try:
            info = runs.about(directory)
            if info is not None:
                Companion(directory, info.config.get("capture_slow", 0)).run()
        except Exception as error:
            log().warning(
                "the run is no longer watched for slow ranks and metrics: %s: %s",
                type(error).__name__,
                error,
            )


def _end_with(pid: int, start: str | None) -> None:
    while start is not None and process_start(pid) == start:
        time.sleep(_ALIVE)
    os._exit(0)


class Companion:
    """Looks at a running job.

    Args:
        most: slow ranks to capture.
    """

    def __init__(self, directory: str, most: int) -> None:
        self._directory = directory
        self._most = most
        self._live = Live(Path(directory), STEPS, SECONDS)
        self._since = 0

    def run(self) -> None:
        """Look until the run has ended."""
        while True:
            began = time.process_time()
            if not self.look():
                return
            time.sleep(max(_INTERVAL, (time.process_time() - began) / _MOST_OF_A_CORE))

    def look(self) -> bool:
        """Look once, and return whether to look again."""
        info = runs.about(self._directory)
        if info is not None and info.finalized:  # the process may live longer than the run
            return False
        known = [slow_rank["worker"] for slow_rank in slow_ranks.found(self._directory)]
        wants_metrics = companion.wants_metrics(self._directory)
        if len(known) >= self._most and not wants_metrics:
            return True  # until somebody does
        run = self._live.look()
        if run is None:
            return True
        if run.state in ("ended", "interrupted"):
            return False
        if wants_metrics:
            companion.write_metrics(self._directory, of_last_step(run))
        slow = suspect(run, self._since, known) if len(known) < self._most else None
        if slow is not None:
            self._since = time.time_ns() + int(_COOLDOWN * 1e9)
            self._capture(slow)
        return True

    def _capture(self, slow: Suspect) -> None:
        ranks = tuple((rank, rank + 1) for rank in (slow.rank, slow.peer_rank))
        order = orders.Order(1, (), (glob.escape(slow.group),), ranks)
        try:
            orders.give(orders.directory_of(self._directory), order)
        except OutputError:  # as no worker is armed
            done = "gpuprof explain shows which lines it runs there"
        else:
            done = f"a step of {slow.worker} and {slow.peer} is captured"
        says = f"{words(slow)}: {done}"
        log().warning("%s", says)
        slow_ranks.note(self._directory, slow.worker, slow.peer, says)


def words(slow: Suspect) -> str:
    """How slow a rank is, in a sentence.

    >>> words(Suspect("Trainer", "Trainer-3", 3, "Trainer-1", 1, 7, "backward", 8, 9, 0.2, 1.41))
    'Trainer-3 took 41 % longer than its 7 peers in backward in 8 of 9 steps'
    """
    more = percentage(slow.ratio - 1) if slow.ratio < _LARGEST_RATIO else duration(slow.seconds)
    peers = slow.peer if slow.peers == 1 else f"its {slow.peers} peers"
    where = f" in {slow.scope}" if slow.scope else ""
    steps = f"{slow.slowest} of {slow.steps} steps"
    return f"{slow.worker} took {more} longer than {peers}{where} in {steps}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

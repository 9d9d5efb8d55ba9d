"""Notices that no scope or step ends in any process of the run any more, and reports the stall.

All processes share one file, `progress` in the run's `.dumps`. A process that has ended a scope or
a step touches the file. The file holds the duration of the longest scope in any process. So an idle
process causes no alarm while other processes make progress. The watch never ends a process, and
reports at most three stalls in a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gpuprof._log import log
from gpuprof._shim.files import write_json
from gpuprof._shim.row import VARIABLE
from gpuprof._shim.safe import UnsafeFile, create, load_json

INTERVAL = 10.0
"""Seconds between two looks."""
LEAST = 60.0
"""The shortest silence, in seconds, that causes an alarm, however short all scopes were before."""
TIMES = 30
"""A silence must last this many times as long as the longest scope so far. An evaluation may take
as long as 20 steps."""
_MOST = 3
_PATIENCE = 120.0
_MORE = 1.1
"""The file is written anew when a scope is longer than the file's longest by this factor."""


class Progress(NamedTuple):
    """The progress of one process.

    Args:
        ended: a number that changes whenever a scope or a step ends.
        longest: the duration in seconds of the longest scope that has ended.
        inside: whether a scope or a step is open, so that something is expected to end.
    """

    ended: int
    longest: float
    inside: bool


class StallWatch:
    """Sounds an alarm when no process of the run makes progress.

    Args:
        run_directory: the run's directory.
        path: the run's `.dumps` directory.
        progress: returns the progress of this process.
        silence: seconds without progress before an alarm; ``None`` means `TIMES` the longest scope,
            and at least `LEAST`.
        alarm: called with the run's directory, the number of the alarm, and how long the silence
            has lasted, in words; by default `report`, on its own thread.
        clock: a clock in seconds.
    """

    def __init__(
        self,
        run_directory: str,
        path: str,
        progress: Callable[[], Progress],
        silence: float | None = None,
        alarm: Callable[[str, int, str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_directory = run_directory
        self._path = path
        self._file = os.path.join(path, "progress")
        self._progress = progress
        self._silence = silence
        self._alarm = alarm or _report_on_thread
        self._clock = clock
        self._ended = -1
        self._stamp: tuple[int, int] | None = None
        self._since = clock()

    def look(self) -> None:
        """Note the progress of this and other processes, and sound the alarm after a silence.

        Raises:
            OSError: the directory cannot be written.
        """
        end_count, longest, inside = self._progress()
        now = self._clock()
        common_longest = self._known()
        if end_count != self._ended or common_longest is None:
            self._ended = end_count
            if common_longest is None or longest > _MORE * common_longest:
                write_json(self._file, {"longest": max(longest, common_longest or 0.0)})
            else:
                os.utime(self._file, follow_symlinks=False)
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp, self._since = stamp, now
        quiet, usual = now - self._since, max(longest, common_longest or 0.0)
        limit = self._silence or max(LEAST, TIMES * usual)
        if inside and usual and quiet > limit * 2 ** self._alarms()[1]:
            number = self._claim()
            if number:
                seconds = f"{quiet:.0f} s; the longest scope before took {usual:.3g} s"
                self._alarm(self._run_directory, number, seconds)

    def _known(self) -> float | None:
        """The duration of the longest scope of all processes; ``None`` if it is not known."""
        with suppress(OSError, UnsafeFile, LookupError, TypeError, ValueError):
            return float(
                load_json(self._file, 1024)["longest"]
            )  # opening the file makes a network file system fetch its current state
        return None

    def _stamped(self) -> tuple[int, int]:
        status = os.lstat(self._file)
        return status.st_ino, status.st_mtime_ns

    def _alarms(self) -> tuple[int, int]:
        """How many alarms the run has had, and how many of them in this silence."""
        all_of_them = of_this = 0
        for number in range(1, _MOST + 1):
            with suppress(OSError):
                when = os.lstat(self._alarm_file(number)).st_mtime_ns
                all_of_them += 1
                of_this += self._stamp is not None and when >= self._stamp[1]
        return all_of_them, of_this

    def _claim(self) -> int:
        """The number of the next alarm, if this process is the one to sound it; else 0."""
        number = self._alarms()[0] + 1
        if number > _MOST:
            return 0
        try:
            os.close(os.open(self._alarm_file(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return 0
        return number

    def _alarm_file(self, number: int) -> str:
        return os.path.join(self._path, f"alarm-{number}")


def _report_on_thread(run_directory: str, number: int, seconds: str) -> None:
    """Report on another thread, because this thread must answer the report's own question."""
    threading.Thread(
        target=report, args=(run_directory, number, seconds), name="gpuprof-alarm", daemon=True
    ).start()


def report(run_directory: str, number: int, seconds: str) -> None:
    """Write what all processes do into the run's directory, and log one line."""
    path = os.path.join(run_directory, f"stall-{number}.txt")
    first = ""
    try:
        with open(create(path), "wb") as file:
            subprocess.run(
                [sys.executable, "-m", "gpuprof", "stacks", run_directory],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                timeout=_PATIENCE,
                check=False,
            )
        with open(path, encoding="utf-8", errors="replace") as text:
            first = text.readline(500).strip()
        if first.endswith(":"):  # a group's heading: no process is known to wait for another
            first = "nobody is known to wait for another"
    except (OSError, subprocess.SubprocessError) as error:
        first = f"{type(error).__name__}: {error}"
    log().warning("nothing has ended in any process for %s: %s; %s", seconds, first, path)


def _environment() -> dict[str, str]:
    """This process's environment, without the variables that would have the command recorded."""
    own = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if not folder.startswith(own))
    names_to_drop = (VARIABLE, "PYTHONPATH", "LD_PRELOAD")
    variables = {name: value for name, value in os.environ.items() if name not in names_to_drop}
    return {**variables, "PYTHONPATH": path} if path else variables

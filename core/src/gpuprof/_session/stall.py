"""Notices that no scope or step ends in any process of the run any more, and reports the stall.

All processes share one file, `progress` in the run's `.dumps`. A process that has ended a scope or
a step touches the file. The file holds the duration of the longest scope in any process. So an idle
process causes no alarm while other processes make progress. Nodes that do not share the run's
directory are asked before a report is made, and make none themselves. The watch never ends a
process, and reports at most three stalls in a run.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

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
FIRST = 600.0
"""The shortest silence while nobody knows how long an open scope takes, as it has never ended
before: a first step may download a model, and compile. Such a silence causes one alarm."""
MOVES = 3
"""The exit code of `gpuprof stacks --unless-within` if something has ended."""
_MOST = 3
_PATIENCE = 120.0
_NO_ANSWER = "gpuprof stacks gave no answer; ask again"
_MORE = 1.1
"""The file is written anew when a scope is longer than the file's longest by this factor."""


class Progress(NamedTuple):
    """The progress of one process.

    Args:
        ended: a number that changes whenever a scope or a step ends.
        longest: the duration in seconds of the longest scope that has ended.
        inside: whether a scope is open, so that something is expected to end.
        first: whether a scope is open that has not ended before and waits for nobody, so that
            nobody knows how long it takes.
    """

    ended: int
    longest: float
    inside: bool
    first: bool = False


class StallWatch:
    """Sounds an alarm when no process of the run makes progress.

    Args:
        run_directory: the run's directory.
        path: the run's `.dumps` directory.
        progress: returns the progress of this process.
        silence: seconds without progress before an alarm; ``None`` means `TIMES` the longest scope,
            and at least `LEAST`.
        alarm: called with the run's directory, the number of the alarm, how long the silence has
            lasted, in words, and how many seconds a silence must last; by default `report`, on its
            own thread.
        clock: a clock in seconds.
    """

    def __init__(
        self,
        run_directory: str,
        path: str,
        progress: Callable[[], Progress],
        silence: float | None = None,
        alarm: Callable[[str, int, str, float], object] | None = None,
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
        self._first = os.path.join(path, f"first-{secrets.token_hex(4)}")
        self._is_first = False
        self._count, self._counted = 0, 0.0

    @property
    def quiet(self) -> float:
        """For how many seconds nothing has ended on this node, as of the last look."""
        return self._clock() - self._since

    def look(self) -> None:
        """Note the progress of this and other processes, and sound the alarm after a silence.

        Raises:
            OSError: the directory cannot be written.
        """
        end_count, longest, inside, first = self._progress()
        begins = first and not self._is_first
        if first != self._is_first:
            self._is_first = first
            self._note_first()
        now = self._clock()
        common_longest = self._known()
        if end_count != self._ended or begins or common_longest is None:
            self._ended = end_count
            if common_longest is None or longest > _MORE * common_longest:
                write_json(self._file, {"longest": max(longest, common_longest or 0.0)})
            else:
                os.utime(self._file, follow_symlinks=False)
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp, self._since = stamp, now
        usual = max(longest, common_longest or 0.0)
        is_new = not self._silence and (not usual or self._is_any_first())
        limit = self._silence or max(LEAST, TIMES * usual, FIRST if is_new else 0.0)
        count = self._alarms()[1]
        if count != self._count:
            self._count, self._counted = count, now
        due = self._counted + limit * 2 ** (count - 1) if count else self._since + limit
        is_due = now > due and not (is_new and count)
        # a node without the run's own directory does not see the progress of others
        if inside and is_due and os.path.exists(os.path.join(self._run_directory, "run.json")):
            number = self._claim()
            if number:
                before = f"the longest scope before took {usual:.3g} s"
                words = before if usual else "no scope has ended before"
                self._alarm(self._run_directory, number, f"{self.quiet:.0f} s; {words}", limit)

    def _note_first(self) -> None:
        if self._is_first:
            write_json(self._first, {})
        else:
            with suppress(FileNotFoundError):
                os.unlink(self._first)

    def _is_any_first(self) -> bool:
        """Whether any process is in a scope that nobody knows the duration of."""
        return any(name.startswith("first-") for name in os.listdir(self._path))

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


def _report_on_thread(*arguments: Any) -> None:
    """Report on another thread, because this thread must answer the report's own question."""
    threading.Thread(target=report, args=arguments, name="gpuprof-alarm", daemon=True).start()


def reports(run_directory: str) -> list[str]:
    """A sentence for each report that the run's directory has."""
    return [
        f"nothing ended in any process for long; {path} says what each one did"
        for path in _files(run_directory)
    ]


def last_sentence(run_directory: str) -> str:
    """What the last report says of who waits for whom; empty if there is none."""
    with suppress(OSError, IndexError):
        return _first_sentence(_files(run_directory)[-1])
    return ""


def _files(run_directory: str) -> list[str]:
    """The reports; one that is still being written, or was interrupted, is empty."""
    with suppress(OSError):
        names = sorted(os.listdir(run_directory))
        reports = [name for name in names if re.fullmatch(r"stall-\d\.txt", name)]
        paths = [os.path.join(run_directory, name) for name in reports]
        return [path for path in paths if os.path.getsize(path)]
    return []


def _first_sentence(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as text:
        first = text.readline(500).strip()
    # a group's heading: no process is known to wait for another
    return "nobody is known to wait for another" if first.endswith(":") else first


def report(run_directory: str, number: int, seconds: str, limit: float) -> None:
    """Write what all processes do into the run's directory, and log one line.

    Does nothing if another node has made progress in the last half of `limit` seconds.
    """
    path = os.path.join(run_directory, f"stall-{number}.txt")
    try:
        with open(create(path), "wb") as file:
            command = subprocess.run(
                [
                    *(sys.executable, "-m", "gpuprof", "stacks", run_directory),
                    *("--unless-within", f"{limit / 2}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                env=own_environment(),
                timeout=_PATIENCE,
                check=False,
            )
        if command.returncode == MOVES:
            dumps = os.path.join(run_directory, ".dumps")
            os.utime(os.path.join(dumps, "progress"))
            os.unlink(os.path.join(dumps, f"alarm-{number}"))
            os.unlink(path)
            return
        first = _first_sentence(path) or _NO_ANSWER
    except (OSError, subprocess.SubprocessError) as error:
        first = f"{type(error).__name__}: {error}"
    log().warning("nothing has ended in any process for %s: %s; %s", seconds, first, path)


def own_environment() -> dict[str, str]:
    """The environment for a command of gpuprof: without what would have the command recorded."""
    own = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if not folder.startswith(own))
    names_to_drop = (VARIABLE, "PYTHONPATH", "LD_PRELOAD")
    variables = {name: value for name, value in os.environ.items() if name not in names_to_drop}
    return {**variables, "PYTHONPATH": path} if path else variables

"""Runs a tool with a worker in it: passes signals on, and waits for both to end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from .inherited import TERMINAL_SIGNALS, restore_signals
from .processes import process_parent, process_start, started_process
from .scratch import PATIENCE, Progress, end_tool

_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_START_DEADLINE = 60.0
"""Seconds to wait for a start. After that, a mark that appears later still counts."""
_ADOPTED_DEADLINE = 10.0
"""Seconds that a tool's process may go on after the end of the worker that it waits for."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
IDLE = 10.0
"""Seconds without work or disk waits after which a tool counts as hung."""
UNKNOWN = os.EX_SOFTWARE
"""The exit code for an unknown one."""
UNKNOWN_EXIT_CODE = (
    "the exit code is unknown: the program was killed, crashed, or called os._exit, and its "
    "profiler does not pass that on; or the profiler ended first"
)


def start(
    command: list[str],
    environment: dict[str, str],
    apart: bool,
    outputs: tuple[int, ...] = (),
    log: int | None = None,
    own_group: bool = False,
) -> subprocess.Popen[bytes]:
    """Start the tool, with the worker in it.

    Args:
        apart: the tool gets a session of its own, and so no signal that is sent to our process
            group.
        outputs: see `spare_outputs`. The tool prints to `log` instead of the worker's outputs.
        log: the tool's own output; stderr if there is none.
        own_group: the tool gets a process group of its own in our session. The worker joins ours
            again; see `inherited.restore_command`.
    """
    for number in outputs:
        os.set_inheritable(number, True)
    own = (2 if log is None else log) if outputs else None
    # A launcher's ranks may have files of it open that they need, as those of MPI have.
    return subprocess.Popen(
        command,
        env=environment,
        start_new_session=apart,
        stdout=own,
        stderr=own,
        close_fds=not apart,
        pass_fds=() if apart else outputs,
        preexec_fn=_lead_group if own_group else None,
    )


def _lead_group() -> None:
    os.setpgrp()
    for number in TERMINAL_SIGNALS:  # would stop it for as much as a word to the terminal
        signal.signal(number, signal.SIG_IGN)


class _Target:
    """The worker's process, from the mark that it leaves.

    Remembered, since the mark disappears if somebody removes the run's directory.

    Args:
        mark: where the worker says that it has started.
        tool: the process above it that we have started.
    """

    def __init__(self, mark: str, tool: int) -> None:
        self._mark = mark
        self._tool = tool
        self._process: tuple[int, str] | None = None
        self.line: tuple[int, ...] = ()
        """The worker and its ancestors below the tool's front process."""

    def process(self) -> tuple[int, str] | None:
        """The worker's process; ``None`` before it has started."""
        if self._process is None:
            self._process = started_process(self._mark)
            if self._process is not None:
                self.line = tuple(_ancestors(self._process[0], self._tool))
        return self._process

    @property
    def lives(self) -> bool:
        """Whether the worker has started and not ended."""
        worker = self.process()
        return worker is not None and process_start(worker[0]) == worker[1]

    def await_start(self, tool: subprocess.Popen[bytes]) -> None:
        """Wait until the worker has started or the tool has ended.

        Gives up after a time: not every tool leaves a mark.
        """
        until = time.monotonic() + _START_DEADLINE
        while (
            self._mark
            and self.process() is None
            and not _has_ended(tool)
            and time.monotonic() < until
        ):
            time.sleep(0.05)

    @property
    def is_over(self) -> bool:
        """Whether the worker has started and ended."""
        return self.process() is not None and not self.lives

    def await_end(self) -> None:
        """Wait for the worker, which may outlive the tool's front process.

        Our parent treats our exit as the worker's.
        """
        while self.lives:
            time.sleep(0.1)  # os.pidfd_open is not in every build of Python

    @property
    def started(self) -> bool:
        """Whether the worker ever started. On a full disk the mark is empty."""
        return self.process() is not None or os.path.exists(self._mark)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended. Leaves it a zombie, so that its id is not reused yet."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:  # it is no zombie any more
        return True


def _ancestors(pid: int, until: int) -> Iterator[int]:
    """A process and its ancestors, up to `until` or this process."""
    while pid not in (until, os.getpid(), 0, 1):
        yield pid
        pid = process_parent(pid)


def adopt_orphans(adopt: bool) -> None:
    """Become the parent of orphaned descendants, to learn their exit codes.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER. Without it nobody learns that.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # slow to import; not in every build of Python

        ctypes.CDLL(None).prctl(36, int(adopt), 0, 0, 0)


def _is_in_our_group(pid: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getpgid(pid) == os.getpgrp()
    return True


def _adopted_code(line: Iterable[int]) -> int | None:
    """The worker's exit code, if this process adopted the worker or an ancestor of it.

    That front has not waited for it, so its own exit code says nothing of the worker.

    Args:
        line: the worker, its parent, and so on. A parent ends as its child did: it is the tool's.
    """
    until = time.monotonic() + _ADOPTED_DEADLINE
    for pid in line:
        with suppress(ChildProcessError):  # it was not left to us
            while time.monotonic() < until:
                process, status = os.waitpid(pid, os.WNOHANG)
                if process:
                    return os.waitstatus_to_exitcode(status)
                time.sleep(0.02)
    return None


def send(worker: tuple[int, str], number: int) -> None:
    """Send a signal to a worker, which may end at any moment."""
    if process_start(worker[0]) == worker[1]:
        with suppress(ProcessLookupError):
            os.kill(worker[0], number)


class End(NamedTuple):
    """The ends of a tool and its worker.

    Args:
        code: the worker's exit code, as far as the tool passes it on; ``None`` if nobody knows it.
        started: whether the worker has started.
        stalled: whether the tool was ended, as it made no progress after the worker's end.
    """

    code: int | None
    started: bool
    stalled: bool


def _await_tool(tool: subprocess.Popen[bytes], target: _Target, scratch: str) -> bool:
    """Wait for the tool's end.

    After the worker's end, its patience is `PATIENCE`: nsys waits for ever if its launcher, which
    stands between it and the worker, was killed.

    Returns:
        Whether the tool was ended for that.
    """
    while not target.is_over:
        if _has_ended(tool):
            return False
        time.sleep(0.1)
    progress = Progress(scratch)
    looks = 0
    while not _has_ended(tool):
        looks += 1
        if looks % 10 == 0 and progress.idle() > PATIENCE:  # a look takes milliseconds
            end_tool(scratch, at_once=True)
            return True
        time.sleep(0.1)
    return False


def wait(
    process: subprocess.Popen[bytes],
    mark: str,
    to_worker: bool,
    apart: bool,
    undelivered: list[int],
    scratch: str = "",
) -> End:
    """Pass signals on until tool and worker have ended.

    Args:
        process: the tool.
        mark: where the worker says that it has started.
        to_worker: signals go to the worker, once it has started: the tool, which is not in our
            process group, would die of them.
        apart: as it was started.
        undelivered: signals that came before any worker had started. This adds to it, even after it
            has returned.
        scratch: the tool's temporary directory; empty without one.
    """
    target = _Target(mark, process.pid)

    def pass_on(number: int, _: object) -> None:
        process.poll()  # it may just have ended
        worker = target.process() if to_worker or process.returncode is not None else None
        if worker is None:
            undelivered.append(number)
            process.send_signal(number)
        else:
            send(worker, number)

    def interrupt(number: int, frame: object) -> None:
        """Pass on an interrupt, unless it has come to the whole process group by itself."""
        worker = target.process()
        if apart or (to_worker and not (worker and _is_in_our_group(worker[0]))):
            pass_on(number, frame)

    # A handler, unlike SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, interrupt)
    for number in PASSED_ON:
        signal.signal(number, pass_on)

    def reap(_: int, __: object) -> None:
        """Reap the job's orphans, except those that carry the worker's exit code."""
        target.process()  # it may have ended before we have looked for it
        with suppress(ChildProcessError, ProcessLookupError):
            while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = child.si_pid
                is_ours = apart and os.getsid(pid) == os.getsid(0)  # such as of another thread
                if is_ours or pid == process.pid or pid in target.line:
                    return
                os.waitpid(pid, 0)

    signal.signal(signal.SIGCHLD, reap)
    for early in undelivered:  # of the previous attempt
        process.send_signal(early)
    target.await_start(process)
    is_stalled = _await_tool(process, target, scratch)
    outlives = target.lives
    code: int | None = process.wait()
    target.await_end()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    orphan_code = _adopted_code(target.line)
    if orphan_code is not None or outlives:
        code = orphan_code
    if target.started and not to_worker:  # the tool got them, and the worker ran
        undelivered.clear()
    return End(code, target.started, is_stalled)


def take_signals(undelivered: Sequence[int] = ()) -> None:
    """Handle signals as the launcher wanted, and deliver those that came early."""
    restore_signals()
    for early in undelivered:
        os.kill(os.getpid(), early)


def pause(seconds: float, undelivered: list[int]) -> None:
    """Wait after an attempt; an undelivered signal ends the wait, an interrupt included."""
    signal.signal(signal.SIGINT, lambda number, _: undelivered.append(number))
    until = time.monotonic() + seconds
    while not undelivered and time.monotonic() < until:
        time.sleep(0.05)


def as_shells_say(code: int) -> int:
    """A process's exit code in the form of shells: 128 plus a signal's number."""
    return code if code >= 0 else 128 - code


def end_as(code: int) -> int:
    """End this process by the signal that `code` stands for.

    Returns:
        `code`, if it stands for no signal, or the signal does not end this process: no signal ends
        the first process of a container.
    """
    number = code - 128
    if 0 < number < signal.SIGRTMIN and number not in _STOPPING:
        from resource import RLIMIT_CORE, getrlimit, setrlimit

        sys.stdout.flush()
        sys.stderr.flush()
        _, most = getrlimit(RLIMIT_CORE)
        # with 0 there is a core all the same where it goes to a program
        setrlimit(RLIMIT_CORE, (0 if most == 0 else 1, most))
        with suppress(OSError):  # of SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return code


def run_tool(
    command: Sequence[str],
    directory: str,
    environment: Mapping[str, str] | None = None,
    deadline: float = 60.0,
) -> str | None:
    """Run a short command of a tool, and end what it leaves behind.

    Args:
        directory: a temporary directory for this command alone.
        environment: variables; by default this process's.
        deadline: seconds in which a healthy tool has finished, on a busy machine, too.

    Returns:
        What it printed; ``None`` if it hangs: it did nothing for 10 s, or is not done in time.

    Raises:
        OSError: it cannot be run.
    """
    variables = {**(os.environ if environment is None else environment), "TMPDIR": directory}
    until = time.monotonic() + deadline
    progress = Progress(directory)
    with subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        output = None
        try:
            while output is None and time.monotonic() < until and progress.idle() <= IDLE:
                with suppress(subprocess.TimeoutExpired):
                    output = process.communicate(timeout=min(1.0, deadline))[0]
                if process.poll() is not None:  # what it leaves behind may hold its output open
                    end_tool(directory)
        finally:
            process.kill()
            end_tool(directory, at_once=True)
        return output


def spare_outputs() -> tuple[int, ...]:
    """Duplicate stdout and stderr for the worker, as numbers that any shell can redirect.

    Returns:
        The two numbers, of one digit each; empty if either is closed, or no such number is free.
    """
    numbers: list[int] = []
    with suppress(OSError):
        numbers += [fcntl.fcntl(output, fcntl.F_DUPFD_CLOEXEC, 3) for output in (1, 2)]
    if len(numbers) == 2 and max(numbers) < 10:
        return tuple(numbers)
    for number in numbers:
        os.close(number)
    return ()

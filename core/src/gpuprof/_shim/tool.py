"""Runs a tool that runs the worker, passes signals on, and waits for both to end."""

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
"""Seconds to wait for the worker's start. A mark that appears later still counts."""
_ADOPTED_DEADLINE = 10.0
"""Seconds to wait for the exit code of an adopted process after the worker's end."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
IDLE = 10.0
"""Seconds without work or disk waits after which a tool counts as hung."""
UNKNOWN = os.EX_SOFTWARE
"""The exit code that stands for an unknown exit code."""
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
    """Start the tool, which starts the worker.

    Args:
        apart: start the tool in a new session, so that it gets no signals sent to our process
            group.
        outputs: the worker's stdout and stderr; see `spare_outputs`. If given, the tool itself
            prints to `log`.
        log: the file descriptor for the tool's own output. Default: stderr.
        own_group: start the tool in a new process group of our session. The worker rejoins our
            group; see `inherited.restore_command`.
    """
    for number in outputs:
        os.set_inheritable(number, True)
    own = (2 if log is None else log) if outputs else None
    # The ranks of a launcher such as MPI may need files that they inherited from it.
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
    for number in TERMINAL_SIGNALS:  # would stop the tool as soon as it prints to the terminal
        signal.signal(number, signal.SIG_IGN)


class _Target:
    """The worker's process, found by the mark file that it leaves.

    Once found, the process is remembered, because the mark disappears if somebody removes the run
    directory.

    Args:
        mark: the file in which the worker records its start.
        tool: the process id of the tool that we started, an ancestor of the worker.
    """

    def __init__(self, mark: str, tool: int) -> None:
        self._mark = mark
        self._tool = tool
        self._process: tuple[int, str] | None = None
        self.line: tuple[int, ...] = ()
        """The process ids of the worker and its ancestors, up to but excluding the tool's own."""

    def process(self) -> tuple[int, str] | None:
        """The worker's process id and start time; ``None`` before the worker has started."""
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

        Gives up after `_START_DEADLINE`, because not every tool's worker leaves a mark.
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
        """Wait for the worker's end, which may come after the end of the tool we started.

        Our parent treats our exit as the worker's, so we must not exit before the worker.
        """
        while self.lives:
            time.sleep(0.1)  # os.pidfd_open is not in every build of Python

    @property
    def started(self) -> bool:
        """Whether the worker ever started. On a full disk the mark is empty."""
        return self.process() is not None or os.path.exists(self._mark)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended. Does not reap it, so that its id is not reused yet."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:  # already reaped
        return True


def _ancestors(pid: int, until: int) -> Iterator[int]:
    """The ids of a process and its ancestors, up to but excluding `until` or this process."""
    while pid not in (until, os.getpid(), 0, 1):
        yield pid
        pid = process_parent(pid)


def adopt_orphans(adopt: bool) -> None:
    """Become the parent of orphaned descendants, or stop being it.

    Only their parent can learn their exit codes. Source: prctl(2), PR_SET_CHILD_SUBREAPER.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # slow to import; not in every build of Python

        ctypes.CDLL(None).prctl(36, int(adopt), 0, 0, 0)


def _is_in_our_group(pid: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getpgid(pid) == os.getpgrp()
    return True


def _adopted_code(line: Iterable[int]) -> int | None:
    """The worker's exit code, if this process adopted the worker or one of its ancestors.

    In that case the tool we started did not wait for the worker, so the tool's exit code says
    nothing about the worker.

    Args:
        line: the process ids of the worker, its parent, and so on. These parents belong to the
            tool, and pass on the exit code of their child.
    """
    until = time.monotonic() + _ADOPTED_DEADLINE
    for pid in line:
        with suppress(ChildProcessError):  # not our child
            while time.monotonic() < until:
                process, status = os.waitpid(pid, os.WNOHANG)
                if process:
                    return os.waitstatus_to_exitcode(status)
                time.sleep(0.02)
    return None


def send(worker: tuple[int, str], number: int) -> None:
    """Send a signal to a worker, given by process id and start time, unless it has ended."""
    if process_start(worker[0]) == worker[1]:
        with suppress(ProcessLookupError):
            os.kill(worker[0], number)


class End(NamedTuple):
    """How a tool and its worker ended.

    Args:
        code: the worker's exit code, as far as the tool passes it on; ``None`` if it is unknown.
        stalled: whether we ended the tool because it made no progress after the worker's end.
    """

    code: int | None
    started: bool
    stalled: bool


def _await_tool(tool: subprocess.Popen[bytes], target: _Target, scratch: str) -> bool:
    """Wait for the tool's end, and end it if it stalls after the worker's end.

    A tool counts as stalled if it has been idle for `PATIENCE`. nsys waits for ever if its
    launcher, the process between nsys and the worker, was killed.
    """
    while not target.is_over:
        if _has_ended(tool):
            return False
        time.sleep(0.1)
    progress = Progress(scratch)
    looks = 0
    while not _has_ended(tool):
        looks += 1
        if looks % 10 == 0 and progress.idle() > PATIENCE:  # idle() takes milliseconds
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
        mark: the file in which the worker records its start.
        to_worker: send signals to the worker once it has started, because the tool, which is not
            in our process group, would be killed by them.
        undelivered: signals that arrived before the worker had started. Its signal handlers keep
            adding to this list even after this function has returned.
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
        """Pass on an interrupt, unless the worker already got it with our process group."""
        worker = target.process()
        if apart or (to_worker and not (worker and _is_in_our_group(worker[0]))):
            pass_on(number, frame)

    # A handler, unlike SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, interrupt)
    for number in PASSED_ON:
        signal.signal(number, pass_on)

    def reap(_: int, __: object) -> None:
        """Reap the job's orphans, except processes that carry the worker's exit code."""
        target.process()  # the worker may have ended before we first looked for its mark
        with suppress(ChildProcessError, ProcessLookupError):
            while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = child.si_pid
                is_ours = apart and os.getsid(pid) == os.getsid(0)  # such as another thread's child
                if is_ours or pid == process.pid or pid in target.line:
                    return
                os.waitpid(pid, 0)

    signal.signal(signal.SIGCHLD, reap)
    for early in undelivered:  # from the previous attempt
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
    if target.started and not to_worker:  # the tool got the signals, and the worker ran
        undelivered.clear()
    return End(code, target.started, is_stalled)


def take_signals(undelivered: Sequence[int] = ()) -> None:
    """Restore the launcher's signal settings, and send this process the undelivered signals."""
    restore_signals()
    for early in undelivered:
        os.kill(os.getpid(), early)


def pause(seconds: float, undelivered: list[int]) -> None:
    """Wait after a failed attempt. A signal that arrives, even an interrupt, ends the wait."""
    signal.signal(signal.SIGINT, lambda number, _: undelivered.append(number))
    until = time.monotonic() + seconds
    while not undelivered and time.monotonic() < until:
        time.sleep(0.05)


def as_shells_say(code: int) -> int:
    """A process's exit code as shells report it: 128 plus the number for a signal."""
    return code if code >= 0 else 128 - code


def end_as(code: int) -> int:
    """End this process by the signal that the shell exit code `code` stands for.

    Returns:
        `code`, if it stands for no signal, or if the signal does not end this process. For example,
        signals do not end the first process of a container.
    """
    number = code - 128
    if 0 < number < signal.SIGRTMIN and number not in _STOPPING:
        from resource import RLIMIT_CORE, getrlimit, setrlimit

        sys.stdout.flush()
        sys.stderr.flush()
        _, most = getrlimit(RLIMIT_CORE)
        # A limit of 0 does not prevent a core dump that is piped to a program; a limit of 1 does.
        setrlimit(RLIMIT_CORE, (0 if most == 0 else 1, most))
        with suppress(OSError):  # SIGKILL cannot be set
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
        deadline: seconds in which a healthy tool finishes, even on a busy machine.

    Returns:
        The command's output; ``None`` if it was idle for more than `IDLE` or missed the deadline.
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
                if process.poll() is not None:  # its leftover processes may hold the pipe open
                    end_tool(directory)
        finally:
            process.kill()
            end_tool(directory, at_once=True)
        return output


def spare_outputs() -> tuple[int, ...]:
    """Duplicate stdout and stderr for the worker, as descriptors that any shell can redirect.

    Returns:
        The two descriptors, of one digit each; empty if stdout or stderr is closed, or if no
        one-digit descriptor is free.
    """
    numbers: list[int] = []
    with suppress(OSError):
        numbers += [fcntl.fcntl(output, fcntl.F_DUPFD_CLOEXEC, 3) for output in (1, 2)]
    if len(numbers) == 2 and max(numbers) < 10:
        return tuple(numbers)
    for number in numbers:
        os.close(number)
    return ()

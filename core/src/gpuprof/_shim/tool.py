"""Running a tool with a worker in it: signals, and how the two end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from .inherited import restore_signals
from .processes import process_start, started_process

_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_START_DEADLINE = 60.0
"""Seconds. A tool that takes longer is believed by the mark that is there in the end."""
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)


def start(
    command: list[str],
    environment: dict[str, str],
    apart: bool,
    outputs: tuple[int, ...] = (),
    log: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start the tool, with the worker in it.

    Args:
        apart: the tool gets a session of its own, and so no signal that is sent to our process
            group.
        outputs: see `spare_outputs`. The tool prints to `log` instead of the worker's outputs.
        log: the tool's own output; stderr if there is none.
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
    )


class _Target:
    """The worker's process, as its mark tells.

    Remembered, since the mark disappears if somebody removes the run's directory.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._process: tuple[int, str] | None = None

    def process(self) -> tuple[int, str] | None:
        """Which process it is; ``None`` before it has started."""
        self._process = self._process or started_process(self._mark)
        return self._process

    def await_start(self, tool: subprocess.Popen[bytes]) -> None:
        """Wait until the worker has started or the tool has ended.

        Gives up after a time: not every tool leaves a mark.
        """
        until = time.monotonic() + _START_DEADLINE
        while (
            self._mark
            and self.process() is None
            and tool.returncode is None
            and time.monotonic() < until
        ):
            with suppress(subprocess.TimeoutExpired):
                tool.wait(0.1)

    def await_end(self) -> None:
        """Wait for the worker, which may outlive the tool's front process.

        Our parent treats our exit as the worker's.
        """
        worker = self.process()
        while worker is not None and process_start(worker[0]) == worker[1]:
            time.sleep(0.1)  # os.pidfd_open is not in every build of Python

    @property
    def started(self) -> bool:
        """Whether the worker ever started. On a full disk the mark is empty."""
        return self.process() is not None or os.path.exists(self._mark)


def send(worker: tuple[int, str], number: int) -> None:
    """Send a signal to a worker, which may end at any moment."""
    if process_start(worker[0]) == worker[1]:
        with suppress(ProcessLookupError):
            os.kill(worker[0], number)


def wait(
    process: subprocess.Popen[bytes],
    mark: str,
    to_worker: bool,
    apart: bool,
    undelivered: list[int],
) -> tuple[int, bool]:
    """Pass signals on until the tool has ended, and the worker.

    Args:
        process: the tool.
        mark: where the worker says that it has started.
        to_worker: signals go to the worker, once it has started: the tool would die of them, and
            nsys ends with 0 after SIGTERM, whatever the worker's code.
        apart: as it was started.
        undelivered: signals that came before any worker had started. This adds to it, even after it
            has returned.

    Returns:
        The tool's exit code; whether the worker has started.
    """
    target = _Target(mark)

    def pass_on(number: int, _: object) -> None:
        process.poll()  # it may just have ended
        worker = target.process() if to_worker or process.returncode is not None else None
        if worker is None:
            undelivered.append(number)
            process.send_signal(number)
        else:
            send(worker, number)

    # An interrupt from the terminal reaches the whole process group by itself. A handler, unlike
    # SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, pass_on if apart else lambda number, _: None)
    for number in PASSED_ON:
        signal.signal(number, pass_on)
    for early in undelivered:  # of the previous attempt
        process.send_signal(early)
    target.await_start(process)
    code = process.wait()
    target.await_end()
    if target.started and not to_worker:  # the tool got them, and the worker ran
        undelivered.clear()
    return code, target.started


class Group:
    """Knows whether a signal that ends processes went to our whole process group.

    Such a signal reaches the tool, too, which may then end with 0 whatever the worker's code. A
    process of our own stands in the group, and only waits.
    """

    def __init__(self) -> None:
        read, self._write = os.pipe()
        self._sentinel = os.fork()
        if self._sentinel:
            os.close(read)
            return
        try:
            for number in {*signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP}:
                with suppress(OSError):
                    signal.signal(number, signal.SIG_DFL if number in _ENDING else signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            os.close(self._write)
            os.read(read, 1)  # until our parent ends the watch, or has ended itself
        finally:
            os._exit(0)

    def end(self) -> int:
        """End the watch. Returns the signal that came; 0 if none did."""
        os.close(self._write)
        _, status = os.waitpid(self._sentinel, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


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
    """A process's exit code as shells report it: 128 plus the number of a signal."""
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


def spare_outputs() -> tuple[int, ...]:
    """Duplicate stdout and stderr for the worker, as numbers that every shell can redirect.

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

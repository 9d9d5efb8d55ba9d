"""The job waits for a profiler that works, and not for one that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpuprof._session import patience
from support.waiting import DEADLINE


@contextmanager
def tool(scratch: Path, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A profiler's process, known by its temporary directory."""
    environment = {**os.environ, "TMPDIR": str(scratch)}
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", script], env=environment, stdin=pipe) as process:
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 0.2)


def test_a_profiler_that_does_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """It may be stopped."""
    with tool(tmp_path, "read line"):
        began = time.monotonic()
        assert not patience.answered(Future(), DEADLINE, str(tmp_path))
    assert time.monotonic() - began < DEADLINE / 2


def test_a_profiler_that_works_is_waited_for(tmp_path: Path) -> None:
    """However long it takes, up to the deadline."""
    future: Future[None] = Future()
    with tool(tmp_path, "while :; do :; done"):
        assert not patience.answered(future, 10 * patience.PATIENCE, str(tmp_path))
        future.set_result(None)
        assert patience.answered(future, DEADLINE, str(tmp_path))


def test_without_processes_of_a_profiler_the_deadline_counts(tmp_path: Path) -> None:
    """One that works in the worker itself has none."""
    began = time.monotonic()
    assert not patience.answered(Future(), 10 * patience.PATIENCE, str(tmp_path))
    assert time.monotonic() - began >= 10 * patience.PATIENCE


ENDS = """
import ctypes, signal, time
from gpuprof._session.patience import unhurried

libc = ctypes.CDLL(None)
abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: libc.abort())
libc.signal(signal.SIGALRM, abort)  # as Ray's handler of SIGTERM does
libc.alarm(1)
with {block}:
    time.sleep(1.5)
assert signal.getitimer(signal.ITIMER_REAL)[0] > 1
"""


@pytest.mark.parametrize(
    ("block", "code"), [("unhurried()", 0), ("__import__('contextlib').nullcontext()", -6)]
)
def test_a_process_that_takes_long_to_end_is_not_aborted_for_it(block: str, code: int) -> None:
    """And the alarm goes on afterwards, with the time that the job itself may need."""
    program = [sys.executable, "-c", ENDS.replace("{block}", block)]
    assert code == subprocess.run(program, timeout=DEADLINE, stderr=subprocess.DEVNULL).returncode

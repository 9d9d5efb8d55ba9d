"""`gpuprof stacks`: what real processes do that do not move."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._artifacts import ledger
from gpuprof._artifacts.alive import record_rank
from gpuprof._artifacts.dumps import _by_signal, last_frames
from gpuprof._artifacts.stacks import read
from gpuprof._cli import main
from gpuprof._session import stall
from support.json_output import faults
from support.launched import GPUPROF, started
from support.waiting import wait_until

PROGRAM = """
import asyncio, itertools, queue, subprocess, sys, threading
import gpuprof

async def forever():
    await asyncio.Event().wait()  # task

class Opaque:  # as Ray's coroutines are
    def __await__(self):
        return forever().__await__()

async def task():
    await Opaque()

def next_batch(batches):
    with gpuprof.timer("data"):
        return batches.get()  # queue

def endless_in_c():
    return sum(itertools.repeat(0))  # c

def computes():
    subprocess.Popen(["sh", "-c", "while :; do :; done"])
    twice()

def endless():
    while True: pass  # python

def twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # lock

with gpuprof.step(0):
    print("ready", flush=True)
    {"queue": lambda: next_batch(queue.Queue()), "c": endless_in_c, "python": endless,
     "lock": twice, "child": computes, "task": lambda: asyncio.run(task())}[sys.argv[1]]()
"""


@contextmanager
def stuck(directory: Path, how: str) -> Iterator[tuple[Path, int]]:
    """The run of a process that does not go on, and its process id."""
    (directory / "train.py").write_text(PROGRAM)
    with started(directory, [*GPUPROF, "--", sys.executable, "train.py", how]) as (process, _):
        (run,) = directory.glob("gpuprof-output/*")
        wait_until(lambda: list(run.glob("*/Program-0.start-1.json")), "the session has its file")
        try:
            yield run, process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def stacks(run: Path, *more: str) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["stacks", str(run), "--again", "0.5", "--json", *more])
    assert not done.exception, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    assert [] == faults("stacks", answer)
    return answer


@pytest.mark.parametrize(
    ("how", "function", "state"),
    [
        ("queue", ["queue.get", "next_batch"], "waits"),
        ("c", ["endless_in_c"], "busy"),
        ("python", ["endless"], "busy"),
        ("lock", ["twice"], "waits"),
    ],
)
def test_what_does_not_move_is_named(
    tmp_path: Path, how: str, function: list[str], state: str
) -> None:
    """The function that a rank is in, also where C code holds Python's lock."""
    (line,) = [
        number for number, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith(f"# {how}")
    ]
    with stuck(tmp_path, how) as (run, _):
        (found,) = [each for each in stacks(run)["stacks"] if not each["thread"]]
    assert function == found["functions"][: len(function)]
    assert (state, f"train.py:{line}") == (found["state"], found["location"])


def test_a_child_that_computes_is_counted(tmp_path: Path) -> None:
    """A process that waits for it is slow, and does not hang."""
    with stuck(tmp_path, "child") as (run, _):
        wait_until(lambda: stacks(run)["waits"], "its child has begun")
        sentences = stacks(run)["waits"]
    assert ["Program-0 has 1 child process that is not recorded, and computes"] == sentences


def test_a_suspended_task_is_shown(tmp_path: Path) -> None:
    """No thread is in it, and an object without attributes is between its coroutines."""
    (line,) = [n for n, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith("# task")]
    with stuck(tmp_path, "task") as (run, _):
        (task,) = [entry for entry in stacks(run)["stacks"] if "task" in entry["thread"]]
    assert ["forever", "task"] == task["functions"][-2:]
    assert ("waits", f"train.py:{line}") == (task["state"], task["location"])


def test_a_stopped_process_is_named(tmp_path: Path) -> None:
    """It cannot answer, so the kernel does, and its last record tells where it was."""
    (line,) = [
        number for number, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith("# lock")
    ]
    with stuck(tmp_path, "lock") as (run, pid):
        wait_until(lambda: sampled(run) == ["twice"], "sampled")
        os.kill(pid, signal.SIGSTOP)
        done = CliRunner().invoke(main, ["stacks", str(run), "--again", "0"])
    assert (1, True) == (done.exit_code, f"Program-0 (process {pid} on" in done.output)
    sentence = r"is stopped, by SIGSTOP or a debugger; its last record is \d+ s old, in twice at "
    assert re.search(rf"{sentence}train\.py:{line}\n", done.output), done.output


def test_a_process_that_runs_python_code_gets_no_signal(tmp_path: Path) -> None:
    """The signal's handler reads the frames without a lock, which would crash the process."""
    with stuck(tmp_path, "python") as (_, pid):
        assert _by_signal(pid) is None


def sampled(run: Path) -> list[str]:
    """The functions in which the main thread was sampled last."""
    records = [ledger.read(path) for path in run.glob("*/*.ledger")]
    frames = [
        last_frames(record, stacks) for record in records if (stacks := read(record)) is not None
    ]
    return [stack[0][0] for stack in frames if stack]


def test_ranks_without_a_file_are_named(tmp_path: Path) -> None:
    """Their nodes do not share the directory, so they cannot be asked."""
    with stuck(tmp_path, "lock") as (run, _):
        record_rank(str(run), "Program", 0, 3)
        done = CliRunner().invoke(main, ["stacks", str(run), "--again", "0"])
    assert "ranks 1,2 were not asked: " in done.output


def test_the_watchdog_reports_once_nothing_has_ended_anywhere(tmp_path: Path) -> None:
    """It asks the other nodes first, and writes nothing if something has ended there."""
    with stuck(tmp_path, "lock") as (run, _):
        wait_until((run / ".dumps" / "progress").exists, "the watchdog has looked")
        for seconds in (1e6, 0.0):
            (run / ".dumps" / "alarm-1").touch()
            stall.report(str(run), 1, "9 s", seconds)
            if seconds:
                assert [] == [*run.glob("stall-*"), *run.glob(".dumps/alarm-*")]
    (sentence,) = stall.reports(str(run))
    assert f"nothing ended in any process for long; {run}/stall-1.txt" in sentence
    assert "twice  (train.py:" in (run / "stall-1.txt").read_text()
    ended = CliRunner().invoke(main, ["stacks", str(run)]).output
    advice = "gpuprof explain says where its processes were if it hung"
    assert [f"{run}: the run has ended; expected a running job; {advice}", sentence] == [
        line.removeprefix("gpuprof: ") for line in ended.splitlines()[-2:]
    ]


def test_the_question_is_left_in_no_run(tmp_path: Path) -> None:
    """A run that has answered has no more directories than before."""
    with stuck(tmp_path, "lock") as (run, _):
        stacks(run)
        assert [] == [path for path in (run / ".dumps").iterdir() if path.is_dir()]


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    """Nobody else can ask, or read the answers."""
    with stuck(tmp_path, "lock") as (run, _):
        (run / ".dumps").chmod(0o755)
        done = CliRunner().invoke(main, ["stacks", str(run)])
    assert (2, True) == (done.exit_code, "accessible to others (mode 0755)" in done.output)

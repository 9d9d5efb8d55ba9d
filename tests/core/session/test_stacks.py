"""What is sampled of the threads of a process, read back by the reader."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpuprof._artifacts import ledger as ledgers
from gpuprof._artifacts import stacks as reader
from gpuprof._session import stacks as writer
from gpuprof._session.ledger import LedgerWriter, make_header
from gpuprof._session.stacks import Sampler
from gpuprof._shim.row import VARIABLE, encode
from gpuprof_timing import Timing, compiled
from gpuprof_timing.recording import CAN_SAMPLE
from support.manual_clock import Clock
from support.recorder import Recorder
from support.waiting import DEADLINE, wait_until

RARELY = 1e-6
"""Samples a second: a test takes its own."""
Seen = list[tuple[str, str, str, int]]
"""Functions from the outermost on, place, thread and milliseconds of each stretch."""


@pytest.fixture
def ledger(clock: Clock, path: Path, faults: list[str]) -> Iterator[LedgerWriter]:
    """A ledger with a sampler that takes no sample by itself."""
    header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
    limits = {"bytes_per_step": 3_000, "total": 10**9, "sampling": RARELY}
    ledger = LedgerWriter(str(path), header, limits, faults.append, clock, clock)  # type: ignore[arg-type]
    ledger.begin()
    ledger.event("something to write")
    yield ledger
    ledger.end()


@pytest.fixture
def sampler(ledger: LedgerWriter) -> Sampler:
    assert ledger._sampler is not None
    return ledger._sampler


@contextmanager
def busy_in(work: Callable[[Callable[[], object]], object]) -> Iterator[None]:
    """A thread that has reached what `work` calls and waits there."""
    reached, over = threading.Event(), threading.Event()

    def wait_here() -> None:
        reached.set()
        over.wait()

    thread = threading.Thread(target=work, args=[wait_here], name="busy")
    thread.start()
    reached.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def seen(path: Path, thread: str = "busy") -> Seen:
    """What a thread was seen to do, without what the standard library does in it."""
    ledger = ledgers.read(path)
    read = reader.read(ledger)
    assert read is not None
    rows = []
    for stack, track, place, _, start, end in read.samples.tolist():
        names = []
        while stack:
            stack, function, _ = read.stacks[stack].tolist()
            if read.functions[function].module != "threading":
                names.append(read.functions[function].function.split(".")[-1])
        if ledger.tracks[track].name == thread:
            where = ledger.places[place].path
            rows.append(("/".join(reversed(names)), where, thread, (end - start) // 10**6))
    return rows


def test_a_thread_is_seen_in_its_function_and_scope(
    ledger: LedgerWriter, sampler: Sampler, clock: Clock, path: Path
) -> None:
    """From one sample to the next."""
    timing = Timing("t", clock=clock)

    def load(wait: Callable[[], object]) -> None:
        with timing.add_time("train"), timing.add_time("data"):
            wait()

    sampler.sample()
    with busy_in(load):
        clock.advance(0.05)
        sampler.sample()
        clock.advance(0.05)
        sampler.sample()
        ledger.end()
    assert [("load/wait_here", "train/data", "busy", 100)] == seen(path)


def test_a_closed_scope_has_nothing(
    ledger: LedgerWriter, sampler: Sampler, clock: Clock, path: Path
) -> None:
    """A thread that has left its scopes is outside."""
    timing = Timing("t", clock=clock)

    def load(wait: Callable[[], object]) -> None:
        with timing.add_time("data"):
            pass
        wait()

    with busy_in(load):
        sampler.sample()
        ledger.end()
    assert [("load/wait_here", "", "busy", 0)] == seen(path)


def test_a_task_is_seen_on_its_own_track(
    ledger: LedgerWriter, sampler: Sampler, clock: Clock, path: Path
) -> None:
    """The scopes of its event loop's thread are not its own."""
    timing = Timing("t", clock=clock)

    async def main() -> None:
        with timing.add_time("serve"):
            clock.advance(1)
            sampler.sample()
            clock.advance(1)

    asyncio.run(main())
    ledger.end()
    read = ledgers.read(path)
    samples = reader.read(read)
    assert samples is not None
    (track,) = set(read.spans["track"].tolist())
    assert read.tracks[track].task
    assert track in samples.samples["track"].tolist()


def test_a_stretch_that_goes_on_is_written_in_parts(
    ledger: LedgerWriter, sampler: Sampler, clock: Clock, path: Path
) -> None:
    """Each as long as what is written already: a killed process keeps half of it."""
    with busy_in(lambda wait: wait()):
        sampler.sample()
        for _ in range(8):
            clock.advance(1)
            sampler.sample()
            ledger.drain()
        written = seen(path)
    assert [1000, 1000, 2000, 4000] == [length for *_, length in written]


def test_no_value_is_written(ledger: LedgerWriter, sampler: Sampler, path: Path) -> None:
    """Only names of functions, modules and files."""
    secret = "hunter2"
    own = {"__name__": "job", "password": secret, "values": {}}
    exec("def log_in(wait, token):\n    key = token * 2\n    wait()", own)
    with busy_in(lambda wait: own["log_in"](wait, secret)):  # type: ignore[operator]
        sampler.sample()
        ledger.end()
    content = path.with_suffix(".stacks").read_bytes()
    assert (True, False) == (b"log_in" in content, secret.encode() in content)


def test_stacks_have_a_limit(
    ledger: LedgerWriter,
    sampler: Sampler,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What there is no room for has a time and no name."""
    monkeypatch.setattr(writer, "_MOST_STACKS", 2)
    with busy_in(lambda wait: wait()):
        sampler.sample()
        ledger.end()
    assert [""] == [names for names, *_ in seen(path)]


def test_a_long_job_is_sampled_more_rarely(
    ledger: LedgerWriter, sampler: Sampler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that so many bytes are written, half as often."""
    monkeypatch.setattr(writer, "_HALVES", writer.SAMPLE.size)
    before = sampler.period
    sampler.sample()
    ledger.drain()
    assert 2 * before == sampler.period


def test_expensive_samples_are_taken_more_rarely() -> None:
    """At 20 a second, they take 0.3 s at first, then 0.1 % of a core, as long as they cost."""
    sampler = Sampler(20, Clock(), print)
    pauses = [sampler.pause(spent=spent, elapsed=1_000.0) for spent in (1.2, 1.34)]
    assert [0.05, pytest.approx(40.0)] == pauses


def test_a_higher_rate_may_take_more() -> None:
    """Whoever asks for 50 samples a second gets them at the price of 50."""
    assert 0.02 == Sampler(50, Clock(), print).pause(spent=3.2, elapsed=1_000.0)


def test_a_fault_ends_the_samples_and_nothing_else(
    ledger: LedgerWriter,
    sampler: Sampler,
    path: Path,
    faults: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence says so."""
    sampler.sample()

    def fail(*_: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(sampler, "_pack", fail)
    ledger.drain()
    ledger.event("later")
    ledger.end()
    assert ["no more stacks are sampled: ValueError: a fault; everything else goes on"] == faults
    assert ["something to write", "later", "end"] == [
        event["event"] for event in ledgers.read(path).events
    ]


JOB = """
import gpuprof, os, signal, sys, threading

def wait_for_a_line():
    with gpuprof.timer("wait"):
        sys.stdin.readline()

def job():
    with gpuprof.step(0):
        wait_for_a_line()

job()
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    job()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not CAN_SAMPLE, reason="Python 3.11 needs the compiled module")
def test_killed_and_forked_processes_keep_what_they_had(recorder: Recorder) -> None:
    """Each its own samples."""
    limits = {"bytes_per_step": 3_000, "total": 10**9, "sampling": 100.0}
    row = recorder.row(profiled=False, backend="none", ledger=limits)
    worker = subprocess.Popen(
        [sys.executable, "-c", JOB],
        env={**os.environ, VARIABLE: encode(row)},
        stdin=subprocess.PIPE,
    )
    stdin = worker.stdin
    assert stdin is not None

    def files() -> list[Path]:
        return sorted(recorder.directory.glob("run/*/*.ledger"))

    def sampled(path: Path) -> bool:
        read = reader.read(ledgers.read(path))
        return read is not None and "wait_for_a_line" in {each.function for each in read.functions}

    def both_sampled() -> bool:
        return len(files()) == 2 and all(map(sampled, files()))

    def send_a_line() -> None:
        stdin.write(b"\n")
        stdin.flush()

    wait_until(lambda: list(map(sampled, files())) == [True], "the parent is sampled")
    send_a_line()
    wait_until(both_sampled, "the child is sampled")
    send_a_line()
    worker.communicate(timeout=DEADLINE)
    assert both_sampled()


def test_a_place_that_gives_up_the_gil_has_as_many_samples_as_time() -> None:
    """Though the sampler gets the GIL there first."""
    sampled: Counter[str] = Counter()
    thread, content = threading.get_ident(), b"1" * 16_384

    class Recording(Sampler):
        def _sample(self) -> None:
            sampled[sys._current_frames()[thread].f_code.co_name] += 1

    def compute() -> None:  # some 1 ms
        for _ in range(40_000):
            pass

    def copy() -> None:  # 50 times less
        hashlib.sha256(content)

    usual = sys.getswitchinterval()
    sampler = Recording(100, time.monotonic_ns, pytest.fail)
    sampler.begin()
    while sampled.total() < 150:
        compute()
        copy()
    sampler.end()
    assert sampled["copy"] < 0.3 * sampled.total()
    wait_until(lambda: sys.getswitchinterval() == usual, "the job's switch interval")


@pytest.mark.skipif(not compiled, reason="Python does not tell how long a thread waits for the GIL")
@pytest.mark.skipif(
    not Path("/proc/thread-self/schedstat").exists(),
    reason="nothing tells it from a busy machine",
)
def test_c_code_that_keeps_the_gil_has_samples() -> None:
    """Though the sampler gets the GIL only after it, and would mostly see what follows."""
    sampled: Counter[str] = Counter()
    thread, numbers = threading.get_ident(), range(2_000_000)

    class Recording(Sampler):
        def _sample(self) -> None:
            sampled[sys._current_frames()[thread].f_code.co_name] += 1

    def add_up() -> None:  # some 30 ms
        sum(numbers)

    def wait() -> None:
        time.sleep(0.006)

    sampler = Recording(50, time.monotonic_ns, pytest.fail)
    sampler.begin()
    while sampled.total() < 100:
        add_up()
        wait()
    sampler.end()
    assert sampled["add_up"] > 0.45 * sampled.total()


def test_a_sample_is_taken_at_its_time_whenever_the_sampler_wakes() -> None:
    """It wakes where the job gives up the GIL, and would mostly see what follows there."""
    at = [time.monotonic() + 0.05, time.monotonic() - 0.05]
    sampler = Sampler(100, time.monotonic_ns, pytest.fail)
    assert [False, False] == [sampler._let_go(moment, 0.5) for moment in at]
    assert time.monotonic() >= at[0]

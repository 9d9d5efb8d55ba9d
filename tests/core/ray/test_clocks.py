"""Measuring the workers' clocks over their connections."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuprof._artifacts.ledger import ledgers
from gpuprof._session.ledger import LedgerWriter, clock_id, make_header
from gpuprof._shim.row import VARIABLE, encode
from gpuprof.ray._channel import Channel
from gpuprof.ray._profiler import note_clock
from gpuprof.ray._wire import Measurement, measure, proof
from hypothesis import given
from hypothesis import strategies as st
from support.recorder import Recorder
from support.waiting import DEADLINE, wait_until

BUDGET = {"bytes_per_step": 3_000, "total": 10**9}


@given(
    true=st.integers(-(10**15), 10**15),
    there=st.integers(0, 10**9),
    inside=st.integers(0, 10**6),
    back=st.integers(0, 10**9),
)
def test_the_offset_is_within_its_bound_however_uneven_the_ways(
    true: int, there: int, inside: int, back: int
) -> None:
    """A question may take long and its answer not, or the other way round."""
    asked = 1_000
    received = asked + there - true
    answered = asked + there + inside + back
    stamps = {"asked": asked, "received": received, "sent": received + inside}
    found = measure("clock", stamps, answered)  # type: ignore[arg-type]
    assert abs(found.offset - true) <= found.bound + 1
    assert found.bound <= (there + back + 1) // 2


def test_stamps_that_contradict_each_other_are_refused() -> None:
    """As a clock's that was set in between."""
    with pytest.raises(ValueError, match="contradict"):
        measure("clock", {"asked": 0, "received": 0, "sent": 100}, 10)


@pytest.fixture
def measured() -> list[Measurement]:
    return []


@pytest.fixture
def channel(measured: list[Measurement]) -> Iterator[Channel]:
    channel = Channel("127.0.0.1", measured.append)
    yield channel
    channel.close()


def connect(channel: Channel, worker: str, clock: str) -> socket.socket:
    """A worker's connection, introduced."""
    connection = socket.create_connection(
        (channel.address.host, channel.address.port), timeout=DEADLINE
    )
    challenge = json.loads(connection.makefile("rb").readline())["challenge"]
    proved = proof(channel.address.secret, challenge, worker)
    about = {"node": "node", "pid": 1, "file": f"{worker}.json"}
    hello = {"worker": worker, "proof": proved, "clock": clock, **about}
    connection.sendall(json.dumps(hello).encode() + b"\n")
    return connection


def answer(connection: socket.socket, offset: int, asked: list[str], name: str) -> None:
    """Answer questions for the time, with a clock that shows `offset` more."""
    for line in connection.makefile("rb"):
        question = json.loads(line)
        asked.append(name)
        now = time.perf_counter_ns() + offset
        stamps = {"asked": question["asked"], "received": now, "sent": now}
        connection.sendall(json.dumps(stamps).encode() + b"\n")


def test_one_worker_answers_for_all_that_share_its_clock(
    channel: Channel, measured: list[Measurement]
) -> None:
    """The driver asks once for each node."""
    asked: list[str] = []
    connections = [connect(channel, f"A-{rank}", "there") for rank in range(3)]
    try:
        for rank, connection in enumerate(connections):
            arguments = (connection, 10**12, asked, f"A-{rank}")
            threading.Thread(target=answer, args=arguments, daemon=True).start()
        wait_until(lambda: measured, "a measurement")
    finally:
        for connection in connections:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
    (found,) = measured
    assert abs(found.offset + 10**12) <= found.bound
    assert 1 == len(set(asked))


def test_a_worker_with_the_drivers_clock_is_not_asked(
    channel: Channel, measured: list[Measurement]
) -> None:
    """On one machine all is known."""
    with connect(channel, "A-0", clock_id()), connect(channel, "A-1", "there") as other:
        answering = threading.Thread(target=answer, args=(other, 5, [], "A-1"), daemon=True)
        answering.start()
        wait_until(lambda: measured, "a measurement")
        other.shutdown(socket.SHUT_RDWR)
    assert ["there"] == [found.clock for found in measured]


def test_few_workers_stay_connected_to_tell_the_time(channel: Channel) -> None:
    """A job of a thousand workers may need the files that their connections would take."""
    channel.keeps_all = False
    connections = [connect(channel, f"A-{rank}", "there") for rank in range(5)]
    connections.append(connect(channel, "A-9", clock_id()))
    try:
        wait_until(lambda: len(channel._serving) == 3, "hung up on the others")
        assert 3 == len(channel.connected())
        assert "A-9" not in channel.connected()
    finally:
        for connection in connections:
            connection.close()


def test_a_worker_that_does_not_answer_is_no_harm(
    channel: Channel, measured: list[Measurement]
) -> None:
    """Its clock stays unknown; others are measured."""
    with connect(channel, "A-0", "silent"), connect(channel, "A-1", "there") as other:
        threading.Thread(target=answer, args=(other, 5, [], "A-1"), daemon=True).start()
        wait_until(lambda: measured, "a measurement")
        other.shutdown(socket.SHUT_RDWR)
    assert ["there"] == [found.clock for found in measured]


SHIFT = 250_000_000
"""Nanoseconds."""
_CLONE_NEWTIME = 0x80
IN_ANOTHER_TIME = f"""
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).unshare({_CLONE_NEWTIME}) != 0:
    sys.exit(77)
with open("/proc/self/timens_offsets", "w") as file:
    file.write("monotonic 0 {SHIFT}\\n")
child = os.fork()
if child == 0:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
WORKER = """
import sys, time
import gpuprof
from gpuprof.ray._listener import start_session
from gpuprof.ray._wire import Address
start_session(None, Address(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
for line in sys.stdin:
    with gpuprof.timer("work"):
        print("begun", flush=True)
        sys.stdin.readline()
print(time.perf_counter_ns())
"""


def can_shift_clocks() -> bool:
    """Whether a process can be given another monotonic clock, which takes root."""
    program = IN_ANOTHER_TIME.replace("child = os.fork()", "sys.exit(0)")
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_shift_clocks(), reason="a time namespace needs root and Linux 5.6")
def test_a_clock_that_is_shifted_is_set_right_within_its_bound(
    recorder: Recorder, tmp_path: Path
) -> None:
    """A worker whose monotonic clock really shows 250 ms more than the driver's."""
    header = make_header("run", "Runner", "Runner", 0, "driver", None, "driver")
    home = tmp_path / "run" / "driver"
    home.mkdir(parents=True)
    driver = LedgerWriter(str(home / "Runner.ledger"), header, BUDGET, pytest.fail)  # type: ignore[arg-type]
    measured: list[Measurement] = []

    def note(found: Measurement) -> None:
        note_clock(driver, found)
        measured.append(found)

    channel = Channel("127.0.0.1", note)
    address = channel.address
    row = recorder.row(profiled=False, backend="none", ledger=BUDGET)
    arguments = [address.host, str(address.port), address.secret]
    worker = subprocess.Popen(
        [sys.executable, "-c", IN_ANOTHER_TIME, "-c", WORKER, *arguments],
        env={**os.environ, VARIABLE: encode(row)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        wait_until(lambda: measured, "a measurement")
        asked = time.perf_counter_ns()
        worker.stdin.write("begin\n")
        worker.stdin.flush()
        assert "begun\n" == worker.stdout.readline()
        begun = time.perf_counter_ns()
        worker.communicate("end\n", timeout=DEADLINE)
    finally:
        worker.kill()
        channel.close()
    driver.end()
    found, problems = ledgers(tmp_path / "run")
    assert [] == problems
    other, here = sorted(found, key=lambda each: each.header["role"] == "driver")
    assert other.bound is not None
    assert other.bound < SHIFT / 5
    # the shift is known exactly here, as both clocks are one with the kernel
    assert abs((other.offset - here.offset) + SHIFT) <= other.bound
    start = int(other.spans["start"][0]) + other.offset - here.offset
    assert asked - other.bound <= start <= begun + other.bound

"""What a real job uses of its machine, as its ledgers tell it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.waiting import DEADLINE

LEAKS, BURNS, STARVES = range(3)
READINGS = 9
A_STEP = 2 * 2**20
PAGES = 40
JOB = f"""
import glob, mmap, os, threading, time, gpuprof

rank, kept, step = int(os.environ["RANK"]), [], 0

def burn():
    while True:
        sum(range(1_000))

size = {PAGES} * mmap.PAGESIZE
with open(f"file-{{rank}}", "w+b") as file:
    file.write(b"1" * size)
    os.fsync(file.fileno())
    mapped = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
    descriptor = os.dup(file.fileno())
mapped.madvise(mmap.MADV_RANDOM)

def read_again():  # from the disk, as a process does whose memory was swapped out
    mapped.madvise(mmap.MADV_DONTNEED)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    sum(mapped[::mmap.PAGESIZE])

def is_recorded():
    ledgers = glob.glob("gpuprof-output/*/*/*.ledger")
    readings = [open(path, "rb").read().count(b"used") for path in ledgers]
    return len(readings) == 3 and min(readings) > {READINGS} and step > 60

if rank == {BURNS}:
    threading.Thread(target=burn, name="burner", daemon=True).start()
while not is_recorded():
    with gpuprof.step(step), gpuprof.timer("work"):
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            sum(range(1_000))
        if rank == {LEAKS}:
            kept.append(bytearray(b"1" * {A_STEP}))
            read_again()
    step += 1
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What three ranks used, by rank.

    One leaks, and reads a mapped file from the disk; one has a thread that burns the GIL, and one
    shares its only processor with two busy loops.
    """
    directory = tmp_path_factory.mktemp("job")
    (directory / "job.py").write_text(JOB)
    pin = ["taskset", "-c", str(max(os.sched_getaffinity(0)))]
    loops = [subprocess.Popen([*pin, sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    ranks = []
    try:
        for rank in range(3):
            command = [sys.executable, "-m", "gpuprof", "run", "--", sys.executable, "job.py"]
            variables = {
                "TORCHELASTIC_RUN_ID": "1",
                "RANK": str(rank),
                "WORLD_SIZE": "3",
                "LOCAL_WORLD_SIZE": "3",
            }
            ranks.append(
                subprocess.Popen(
                    [*pin, *command] if rank == STARVES else command,
                    cwd=directory,
                    env={**os.environ, **variables},
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        said = [process.communicate(timeout=DEADLINE)[1] for process in ranks]
        assert [0, 0, 0] == [process.returncode for process in ranks], said
    finally:
        for process in (*ranks, *loops):
            process.kill()
            process.wait()
    command = [sys.executable, "-m", "gpuprof", "explain", "--json"]
    answer = json.loads(subprocess.check_output(command, cwd=directory))
    used = sorted(answer["processes"], key=lambda usage: usage["worker"])
    assert ["Worker-0", "Worker-1", "Worker-2"] == [usage["worker"] for usage in used]
    return used


def test_a_leak_is_measured_by_step(processes: list[dict[str, Any]]) -> None:
    """Of one rank only: the others hold on to nothing."""
    assert pytest.approx(A_STEP, rel=0.15) == processes[LEAKS]["growth"]
    assert [0.0, 0.0] == [processes[rank]["growth"] for rank in (BURNS, STARVES)]


def test_a_thread_that_burns_the_gil_is_seen_beside_the_work(
    processes: list[dict[str, Any]],
) -> None:
    """The working thread neither runs nor is ready to for as long as the other one runs."""
    used = processes[BURNS]
    stands_still = used["works"] - used["ran"] - used["waited"]
    assert "burner" == used["thread"]["name"]
    assert min(stands_still, used["thread"]["ran"]) > 0.3 * used["ran"]


def test_a_crowded_processor_is_seen(processes: list[dict[str, Any]]) -> None:
    """Of three programs on one processor, each gets a third of it."""
    used = processes[STARVES]
    assert 1 == used["usable"]
    assert used["waited"] > used["ran"]


def test_page_faults_that_read_a_disk_are_counted_by_step(
    processes: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Of the rank that has them in each step."""
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True).strip()
    if kind in ("tmpfs", "ramfs"):
        pytest.skip("files are in memory here")
    # the kernel may keep some pages, or give several at once, and a crowded machine adds faults
    assert processes[LEAKS]["faults"] > max(0.2 * PAGES, 4 * processes[BURNS]["faults"])

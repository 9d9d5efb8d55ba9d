"""Reading reports: how it grows with CUDA calls, and its time beside ``nsys stats``.

The first table needs no nsys: exports with a GPU's work are made here. The join of every range with
every call is timed at the smallest size. The second table reads one report of real ranges by
turns, the third many reports. The least of all rounds is taken. Run by ``make bench``; fails if a
goal is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuprof._report import cache
from gpuprof_nsight import Report
from tabulate import tabulate

EXPONENT, SECONDS, WARM = 1.1, 10.0, 1.0
"""Goals: growth with the calls, 20,000 ranges with 400,000 calls, 500,000 cached ranges."""
EVERY_PAIR = """
    SELECT range.rowid, sum(work.end - work.start) FROM NVTX_EVENTS AS range
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call
      ON call.globalTid = range.globalTid AND call.start >= range.start AND call.start < range.end
    JOIN CUPTI_ACTIVITY_KIND_KERNEL AS work ON work.correlationId = call.correlationId
    WHERE range.eventType = 59 GROUP BY range.rowid
"""
MOST_PAIRS = 200_000_000
TABLES = """
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
        text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL);
"""
WORK = """
    CREATE TABLE {} (start INTEGER NOT NULL, end INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER)
"""
KINDS = {"KERNEL": 8, "MEMCPY": 1, "MEMSET": 1}
"""Of ten calls, those with this kind of work."""
RANGE = 1_000
THREADS = [(7 << 48) | (1000 << 24) | (1000 + number) for number in range(4)]
PROGRAM = """
import sys
from gpuprof_nsight._nvtx.package import functions
ours = functions("gpuprof")
names = "step", "forward", "backward", "optimizer"
step, *inner = [ours.describe(name, 0, name, 3) for name in names]
for _ in range(int(sys.argv[1]) // 10):
    ours.push(step)
    for number in range(9):
        ours.push(inner[number % 3])
        ours.pop()
    ours.pop()
"""


def make(database: Path, ranges: int, calls: int) -> None:
    """An export of ranges in four threads, ten in each step, with calls spread over them."""
    events: list[tuple[object, ...]] = [(0, None, 75, "gpuprof", THREADS[0], None, 1)]
    steps = ranges // len(THREADS) // 10
    length = steps * 10 * RANGE
    for thread in THREADS:
        for begin in range(0, length, 10 * RANGE):
            events.append((begin, begin + 10 * RANGE, 59, None, thread, 1, 1))
            for inner in range(9):
                start = begin + inner * RANGE
                events.append((start + 1, start + RANGE, 59, None, thread, 2 + inner % 3, 1))
    events.sort(key=lambda event: (event[0], -int(str(event[1] or 0))))
    launched = [
        (number * length // calls, THREADS[number % len(THREADS)], number)
        for number in range(calls)
    ]
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(TABLES)
        names = enumerate(("step", "forward", "backward", "optimizer"), 1)
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)", events)
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 1)",
            [(start, start + 1, thread, number) for start, thread, number in launched],
        )
        first = 0
        for kind, share in KINDS.items():
            table = f"CUPTI_ACTIVITY_KIND_{kind}"
            connection.execute(WORK.format(table))
            connection.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?, ?)",
                [
                    (start + 500, start + 700, number, thread & ~0xFFFFFF)
                    for start, thread, number in launched
                    if first <= number % 10 < first + share
                ],
            )
            first += share


def least(rounds: int, subject: Callable[[], object]) -> float:
    """Seconds, the least of all rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        subject()
        best = min(best, time.perf_counter() - start)
    return best


def every_pair(database: Path) -> None:
    """Join all ranges with all calls."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(EVERY_PAIR).fetchall()


def growth(directory: Path, ranges: int, sizes: list[int], rounds: int) -> bool:
    """Print the first table; return whether its goals are met."""
    rows, found = [], {}
    for calls in sizes:
        database = directory / f"{calls}.sqlite"
        make(database, ranges, calls)
        found[calls] = least(rounds, lambda path=database: Report(path).range_times("gpuprof"))
        pairs = ""
        if calls * ranges <= MOST_PAIRS:
            pairs = f"{least(1, lambda path=database: every_pair(path)):.2f}"
        rows.append(
            (f"{calls:,}", f"{found[calls]:.2f}", f"{1e6 * found[calls] / calls:.1f}", pairs)
        )
    print(f"{ranges:,} ranges, seconds, the least of {rounds} rounds")
    heads = ["CUDA calls", "one pass", "µs a call", "every pair, kernels only"]
    print(tabulate(rows, heads, tablefmt="github", disable_numparse=True))
    met = True
    if len(sizes) > 1:
        exponent = math.log(found[sizes[-1]] / found[sizes[0]]) / math.log(sizes[-1] / sizes[0])
        print(f"\ngrows with the calls to the power of {exponent:.2f} (goal {EXPONENT})")
        met = exponent <= EXPONENT
    if 400_000 in found:
        print(f"400,000 calls: {found[400_000]:.1f} s (goal {SECONDS:.0f} s)")
        met = met and found[400_000] <= SECONDS
    return met


def run(*command: str) -> None:
    """Run a program to its end."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)


def record(report: Path, ranges: int) -> None:
    """Record real ranges."""
    options = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-o", str(report)]
    run("nsys", "profile", *options, sys.executable, "-c", PROGRAM, str(ranges))


def ours(*words: str) -> None:
    """Print the ranges of a report or a directory, in a process of its own."""
    run(sys.executable, "-m", "gpuprof", "report", "--nvtx", *words)


def beside_nsys(directory: Path, ranges: int, rounds: int) -> bool:
    """Print the second table; return whether its goals are met."""
    report = directory / "one.nsys-rep"
    record(report, ranges)
    found = {"cold": float("inf"), "cached": float("inf"), "nsys stats": float("inf")}
    summary = ("nsys", "stats", "-q", "-r", summary_name(), str(report))
    for _ in range(rounds):
        report.with_suffix(".sqlite").unlink(missing_ok=True)
        found["nsys stats"] = min(found["nsys stats"], least(1, lambda: run(*summary)))
        cache.remove()
        found["cold"] = min(found["cold"], least(1, lambda: ours(str(report))))
        found["cached"] = min(found["cached"], least(1, lambda: ours(str(report))))
    rows = [
        (name, f"{seconds:.2f}", f"{seconds / found['nsys stats']:.2f}")
        for name, seconds in found.items()
    ]
    print(f"\n{ranges:,} ranges, without a GPU, the least of {rounds} rounds")
    print(tabulate(rows, ["what", "s", "to nsys stats"], tablefmt="github", disable_numparse=True))
    return found["cold"] <= found["nsys stats"] and found["cached"] <= WARM


def summary_name() -> str:
    """What this release calls the summary of ranges."""
    done = subprocess.run(
        ["nsys", "stats", "--help-reports"], capture_output=True, text=True, check=False
    )
    return "nvtx_sum" if "nvtx_sum" in done.stdout else "nvtxsum"


def many(directory: Path, reports: int) -> None:
    """Print the third table."""
    first = directory / "0.nsys-rep"
    record(first, 1000)
    for number in range(1, reports):
        shutil.copy(first, directory / f"{number}.nsys-rep")
    found = {}
    cores = os.sched_getaffinity(0)
    for name, used in (("one core", {min(cores)}), (f"{len(cores)} cores", cores)):
        cache.remove()
        os.sched_setaffinity(0, used)
        found[name] = least(1, lambda: ours(str(directory)))
    found["cached"] = least(1, lambda: ours(str(directory)))
    print(f"\n{reports} reports of 1,000 ranges, once each")
    rows = [(name, f"{seconds:.2f}") for name, seconds in found.items()]
    print(tabulate(rows, ["what", "s"], tablefmt="github", disable_numparse=True))


def main() -> int:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranges", type=int, default=20_000)
    sizes = [10_000, 100_000, 400_000, 1_000_000]
    parser.add_argument("--calls", type=int, nargs="+", default=sizes)
    parser.add_argument("--real", type=int, default=500_000, help="ranges of the real report")
    parser.add_argument("--reports", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        met = growth(Path(place), given.ranges, given.calls, given.rounds)
        if shutil.which("nsys"):
            for name in ("one", "many"):
                Path(place, name).mkdir()
            met = beside_nsys(Path(place, "one"), given.real, given.rounds) and met
            many(Path(place, "many"), given.reports)
        else:
            print("\nthe rest needs nsys (scripts/install-nsys.sh)")
    return not met


if __name__ == "__main__":
    sys.exit(main())

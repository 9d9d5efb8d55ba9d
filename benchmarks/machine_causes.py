"""How often explain names what a process lacks: small jobs of two ranks, really run.

In each, rank 1 has one cause: a thread that holds the GIL, two busy loops on its only processor, or
5 MB more memory in each step. In the controls it fills a cache up to a limit, or has no cause.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tabulate import tabulate

RANKS, SUSPECT = 2, 1
JOB = """
import os, threading, time, gpuprof

cause = os.environ["CAUSE"] if os.environ["RANK"] == "1" else ""
kept = []

def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1_000))

def burn():
    while True:
        sum(range(1_000))  # the line of the GIL burner

if cause == "GIL burner":
    threading.Thread(target=burn, name="burner", daemon=True).start()

def load(step):
    work(0.05)
    if cause == "leak" or (cause == "cache that fills" and len(kept) < 50):
        kept.append(bytearray(b"1" * 5_000_000))

for step in range(130):
    with gpuprof.step(step):
        with gpuprof.timer("load"):
            load(step)
        with gpuprof.timer("update"):
            work(0.025)
"""
CAUSES = {
    "GIL burner": "interpreter",
    "starved core": "processor",
    "leak": "leak",
    "cache that fills": "",
    "no cause": "",
}
"""What explain is to find in each; empty: none of these."""


@contextmanager
def busy_loops(processor: int, count: int) -> Iterator[None]:
    """Other programs that keep a processor busy."""
    command = ["taskset", "-c", str(processor), sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(cause: str, number: int, directory: Path) -> dict[str, Any]:
    """Run a job, and return what explain says of it."""
    (directory / "job.py").write_text(JOB)
    last = max(os.sched_getaffinity(0))
    ranks = []
    with busy_loops(last, 2 if cause == "starved core" else 0):
        for rank in range(RANKS):
            pin = ["taskset", "-c", str(last)] if (cause, rank) == ("starved core", SUSPECT) else []
            command = [sys.executable, "-m", "gpuprof", "run", "--", *pin, sys.executable, "job.py"]
            variables = {
                "TORCHELASTIC_RUN_ID": str(number),
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "LOCAL_WORLD_SIZE": str(RANKS),
                "CAUSE": cause,
            }
            ranks.append(
                subprocess.Popen(
                    command,
                    cwd=directory,
                    env={**os.environ, **variables},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        for process in ranks:
            process.wait()
    command = [sys.executable, "-m", "gpuprof", "explain", "--json"]
    answer: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=directory))
    return answer


def named(answer: dict[str, Any]) -> dict[str, str]:
    """The causes of this kind in an answer, with the worker and the words of each."""
    return {
        finding["cause"]: f"{finding['worker']}: {finding['says']}"
        for finding in answer["findings"]
        if finding["cause"] in CAUSES.values()
    }


def main() -> None:
    """Print how often each was named; fail below nine of ten."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=CAUSES, default=list(CAUSES))
    given = parser.parse_args()
    rows = []
    for cause in given.only:
        hits, words = 0, ""
        for number in range(given.times):
            with tempfile.TemporaryDirectory() as directory:
                answer = run(cause, number, Path(directory))
            found = named(answer)
            right = {CAUSES[cause]} - {""} == found.keys() and all(
                says.startswith(f"Worker-{SUSPECT}:") for says in found.values()
            )
            hits += right
            words = next(iter(found.values()), "") if right else words
            if not right:
                print(f"{cause}: {found or 'nothing named'}")
                print(json.dumps(answer["processes"]), flush=True)
        rows.append([cause, f"{hits} of {given.times}", words])
        print(rows[-1], flush=True)
    print(tabulate(rows, ["cause", "right", "in the words of one run"]))
    least = min(int(row[1].split()[0]) / given.times for row in rows)
    raise SystemExit(0 if least >= 0.9 else "fewer than 9 of 10")


if __name__ == "__main__":
    main()

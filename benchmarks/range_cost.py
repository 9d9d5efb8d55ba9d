"""The cost of a range without nsys, under an idle one, and while it captures.

Each state is a process of its own; in it all subjects take turns for many rounds, and the least is
taken. The empty loop is taken off. Run by ``make bench``; fails if the goal is missed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuprof_nsight._nvtx import ranges
from gpuprof_timing import compiled
from tabulate import tabulate

SCOPE = "a scope, with its range if a window is open"
KEPT = "a scope that is kept, with its range"
ROUNDS = 30
PAIRS = 2_000
GOALS = {"our range": 1.5, SCOPE: 1.6 if compiled else 4.5}
"""To a raw push and pop, while nsys captures."""
STATES = ("no nsys", "idle", "capturing")


def measure(subjects: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Nanoseconds a pair, the least of all rounds."""
    best = dict.fromkeys(subjects, float("inf"))
    for _ in range(ROUNDS):
        for name, subject in subjects.items():
            start = time.perf_counter_ns()
            for _ in range(PAIRS):
                subject()
            best[name] = min(best[name], (time.perf_counter_ns() - start) / PAIRS)
    nothing = best.pop("nothing")
    return {name: value - nothing for name, value in best.items()}


def in_worker(state: str, result: str) -> None:
    """Measure in this process, inside the gate if it is to capture, and write JSON."""
    import nvtx
    from gpuprof.backend import Window, Worker
    from gpuprof_nsight._gates.nvtx import NvtxGate
    from gpuprof_nsight._nvtx.package import functions
    from gpuprof_nsight._nvtx.ranges import make
    from gpuprof_timing import Timing, set_range_opener

    ours = functions("gpuprof")
    attributes = ours.describe("raw", 0, "raw", 3)
    push, pop = ours.push, ours.pop
    timing = Timing()
    open_range = make("ActorGroup", 3).open

    def raw() -> None:
        push(attributes)
        pop()

    def range_of_ours() -> None:
        with open_range("range", False):
            pass

    def range_that_crosses_tasks() -> None:
        with open_range("range", True):
            pass

    def scope() -> None:
        with timing.add_time("scope"):
            pass

    kept_scope = timing.add_time("kept")

    def kept() -> None:
        with kept_scope:
            pass

    def annotate() -> None:
        with nvtx.annotate("annotate", domain="gpuprof"):
            pass

    here = Worker("run", "ActorGroup", 0, "node", "1", "/out"), Window(1, 3, 4)
    gate = NvtxGate()
    if state == "capturing":
        gate.open(*here)
        set_range_opener(open_range)
    found = measure(
        {
            "nothing": lambda: None,
            "raw push and pop": raw,
            "our range": range_of_ours,
            "our range, across tasks": range_that_crosses_tasks,
            SCOPE: scope,
            KEPT: kept,
            "nvtx.annotate, made anew": annotate,
        }
    )
    set_range_opener(None)
    gate.close(*here)
    Path(result).write_text(json.dumps(found))


def run(state: str) -> dict[str, float]:
    """Measure in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.json"
        command = [sys.executable, __file__, state, str(result)]
        if state != "no nsys":
            options = [
                "-t",
                "nvtx",
                "--sample=none",
                "--cpuctxsw=none",
                "--capture-range=nvtx",
                "--nvtx-capture=gate@gpuprof-gate",
            ]
            options += [
                "--capture-range-end=repeat:1",
                "--kill=none",
                "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
            ]
            command = ["nsys", "profile", *options, "-o", str(Path(directory) / "report"), *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
        found: dict[str, float] = json.loads(result.read_text())
    return found


def main() -> int:
    """Measure all states and print the table."""
    if not shutil.which("nsys"):
        print("needs nsys (scripts/install-nsys.sh)")
        return 1
    found = {state: run(state) for state in STATES}
    print(f"scopes: {'compiled' if compiled else 'in Python'}")
    print(f"ranges: {'compiled' if ranges.compiled else 'in Python'}")
    print(f"ns for a range opened and closed, the least of {ROUNDS} rounds of {PAIRS}")
    rows = [(name, *(f"{found[state][name]:.0f}" for state in STATES)) for name in found["no nsys"]]
    print(tabulate(rows, ["what", *STATES], tablefmt="github", disable_numparse=True))
    capturing = found["capturing"]
    missed = False
    for name, goal in GOALS.items():
        ratio = capturing[name] / capturing["raw push and pop"]
        missed = missed or ratio > goal
        verdict = "missed" if ratio > goal else "met"
        print(f"{verdict}: {name}: {ratio:.2f} raw pairs while capturing, goal {goal}")
    return missed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        in_worker(*sys.argv[1:])
    else:
        sys.exit(main())

"""What it costs to have gpuprof in a process: importing it, and starting a worker behind the shim.

Everything is measured in one run and interleaved, so that whatever else the machine does falls on
all of it alike. Every sample is a fresh process with warm bytecode caches; the goals are held
against the minimum, which noise cannot lower.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple

import attrs
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof._shim import PROGRAM
from gpuprof._shim.row import INTERPRETER, VARIABLE, Row, encode
from gpuprof.backend.types import Tool
from tabulate import tabulate


class Subject(NamedTuple):
    """Something to measure.

    Args:
        name: what the table calls it.
        command: the process.
        goal: how many milliseconds over the bare interpreter are accepted; `None` for any.
        is_worker: whether it is given a worker's row of a plan.
    """

    name: str
    command: list[str]
    goal: float | None = None
    is_worker: bool = False


def shim_row(output_dir: str) -> Row:
    """A worker under a no-op profiler: the rest is the shim's own work."""
    planner = Planner(
        load({"backend": "none", "worker_groups": "all"}, environ={}), "run", output_dir
    )
    planned = attrs.evolve(planner.worker("group", 0), profiled=True, command=(INTERPRETER,))
    return planner.row(planned, [sys.executable], Tool(sys.executable))


def milliseconds(command: list[str], environment: Mapping[str, str]) -> float:
    """How long a process takes, from before its start to after its end."""
    start = time.perf_counter_ns()
    subprocess.run(command, env=environment, check=True)
    return (time.perf_counter_ns() - start) / 1e6


def measure(subjects: list[Subject], rounds: int) -> dict[str, list[float]]:
    """Samples of every subject in milliseconds, taken in turn."""
    samples: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    with tempfile.TemporaryDirectory() as directory:
        # Caches of our own: on, whatever the caller's environment says, and outside the checkout.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": os.path.join(directory, "cache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environments = {
            False: environment,
            True: {**environment, VARIABLE: encode(shim_row(directory))},
        }
        for subject in subjects:
            milliseconds(subject.command, environments[subject.is_worker])
        for _ in range(rounds):
            for subject in subjects:
                samples[subject.name].append(
                    milliseconds(subject.command, environments[subject.is_worker])
                )
    return samples


def main() -> int:
    """Measure, print the table, and say by the exit code whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=30, help="samples of each subject (default: 30)"
    )
    parser.add_argument("--torch", action="store_true", help="also import torch, for comparison")
    arguments = parser.parse_args()

    bare = Subject("python -c pass", [sys.executable, "-c", "pass"])
    subjects = [
        bare,
        Subject("import gpuprof_timing", [sys.executable, "-c", "import gpuprof_timing"], goal=5),
        Subject("import gpuprof", [sys.executable, "-c", "import gpuprof"], goal=60),
        Subject(
            "python -c pass behind the shim",
            [sys.executable, "-S", "-E", PROGRAM, "-c", "pass"],
            60,
            is_worker=True,
        ),
    ]
    if arguments.torch:
        subjects.append(Subject("import torch", [sys.executable, "-c", "import torch"]))

    samples = measure(subjects, arguments.rounds)
    floor = min(samples[bare.name])
    rows, missed = [], []
    for subject in subjects:
        over = min(samples[subject.name]) - floor
        rows.append(
            [
                subject.name,
                min(samples[subject.name]),
                statistics.median(samples[subject.name]),
                over,
                subject.goal,
            ]
        )
        if subject.goal is not None and over > subject.goal:
            missed.append(
                f"{subject.name}: {over:.1f} ms over the bare interpreter, goal {subject.goal:g} ms"
            )
    print(
        tabulate(
            rows,
            ["what", "min ms", "median ms", "over bare ms", "goal ms"],
            tablefmt="github",
            floatfmt=".1f",
        )
    )
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

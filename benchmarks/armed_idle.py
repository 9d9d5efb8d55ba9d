"""The cost of a step without a capture: unconfigured, planned elsewhere, and armed.

One process for each subject, taken in turns, with a real session and its control thread at work: an
armed one looks for orders twice a second. The driver's steps are those of a real Ray job with one
actor, in turns armed and with a window planned elsewhere: what an armed one costs more is what
being armed costs. The empty loop is taken off. The goal is held against the minimum over the
rounds, which noise cannot lower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from gpuprof._session.orders import make as make_orders
from gpuprof._shim.row import VARIABLE, VERSION, Row, encode
from tabulate import tabulate

GOAL = 1000.0
"""Nanoseconds."""
_CLOCK = """
import json, sys, time

def loop(count, make):
    start = time.perf_counter_ns()
    for number in range(count):
        with make(number):
            pass
    return time.perf_counter_ns() - start

def empty(count):
    start = time.perf_counter_ns()
    for number in range(count):
        pass
    return time.perf_counter_ns() - start
"""
_LOOP = f"""{_CLOCK}
import gpuprof

count = int(sys.argv[1])
gpuprof.timing()
loop(count, gpuprof.step)  # caches
print(json.dumps((loop(count, gpuprof.step) - empty(count)) / count))
"""


_DRIVER_STATES = {
    "with a window planned": {"steps": [10**9]},
    "armed": {"steps": [], "armed": True},
}
_DRIVER = f"""{_CLOCK}
import tempfile
import ray
from gpuprof.ray import Profiler

class Worker:
    pass

count = int(sys.argv[1])
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
output = tempfile.TemporaryDirectory()  # removed at the end of the process
selected = dict(worker_groups=["Worker"], print_trees="none", **json.loads(sys.argv[2]))
profiler = Profiler(
    dict(backend="torch_profiler", output_dir=output.name, on_error="raise", **selected)
)
actor = profiler.start(
    lambda options: ray.remote(Worker).options(**options).remote(), group="Worker", rank=0
)
loop(count, profiler.step)
print(json.dumps([(loop(count, profiler.step) - empty(count)) / count for _ in range(10)]))
ray.shutdown()  # so that nobody writes when the directory is removed
"""


class Subject(NamedTuple):
    """Something to measure.

    Args:
        name: what the table calls it.
        row: what the worker is told; ``None`` for nothing.
    """

    name: str
    row: Row | None


def worker_row(directory: str, **more: object) -> Row:
    """A worker whose backend is installed and whose windows are never reached."""
    return {
        "version": VERSION, "run": "run", "output_dir": directory, "group": "group", "rank": 0,
        "has_gpu": False, "profiled": True, "windows": [], "discrete": False,
        "discrete_labels": ["*"], "max_windows": 32, "file_name": None, "backend": "none",
        "options": {}, "plugins": [], "on_error": "raise", "continuous": False, **more,
    }  # fmt: skip


def nanoseconds(subject: Subject, count: int) -> float:
    """What a step costs in a fresh process."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if subject.row is not None:
        environment[VARIABLE] = encode(subject.row)
    done = subprocess.run(
        [sys.executable, "-c", _LOOP, str(count)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
    )
    return float(json.loads(done.stdout))


def driver_nanoseconds(selected: Mapping[str, object], count: int) -> list[float]:
    """What a step of a driver costs, ten times over, in a job of its own."""
    command = [sys.executable, "-c", _DRIVER, str(count), json.dumps(selected)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, print, and fail if the goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=300_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        planned = [(number, 10**9 + number, 10**9 + number + 1) for number in range(1, 1001)]
        subjects = [
            Subject("no configuration", None),
            Subject(
                "1000 windows planned, none reached",
                worker_row(
                    directory,
                    rank=1,
                    windows=planned,
                ),
            ),
            Subject("armed", worker_row(directory, rank=2, orders=make_orders(directory))),
        ]
        samples: dict[str, list[float]] = {subject.name: [] for subject in subjects}
        for _ in range(given.rounds):
            for subject in subjects:
                samples[subject.name].append(nanoseconds(subject, given.steps))
    for _ in range(max(1, given.rounds // 4)):  # starting Ray takes long
        for state, selected in _DRIVER_STATES.items():
            taken = driver_nanoseconds(selected, given.steps // 10)
            samples.setdefault(f"the driver of a Ray job, {state}", []).extend(taken)
    rows = [
        (name, f"{min(taken):.0f}", f"{statistics.median(taken):.0f}")
        for name, taken in samples.items()
    ]
    print(tabulate(rows, ["a step", "min ns", "median ns"]))
    planned_too, armed = (
        min(samples[f"the driver of a Ray job, {state}"]) for state in _DRIVER_STATES
    )
    costs = {
        "a worker's whole step": min(samples["armed"]),
        "what is more in the driver's": armed - planned_too,
    }
    for what, cost in costs.items():
        print(f"armed and idle, {what}: {cost:.0f} ns (goal {GOAL:.0f})")
    missed = any(cost > GOAL for cost in costs.values())
    sys.exit(missed)


if __name__ == "__main__":
    main()

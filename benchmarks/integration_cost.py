"""The cost of a framework's own scope, alone and with gpuprof's integration.

Fresh processes for each framework and each way, in turns; a scope around nothing, the empty loop
taken off, the minimum over all rows of scopes. No window is open: the tree only. A framework that
cannot be imported is left out; `scripts/frameworks.sh` makes an environment that has them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from tabulate import tabulate

SCOPES = {
    "verl": (
        "verl simple_timer",
        """
from verl.utils.profiler import simple_timer
timings = {}
def scope():
    return simple_timer("gen", timings)
""",
    ),
    "rlinf": (
        "RLinf worker_timer",
        """
from types import SimpleNamespace
from rlinf.scheduler import Worker
worker = SimpleNamespace(_timer_metrics={})
def scope():
    return Worker.worker_timer(worker, "run_training")
""",
    ),
    "nemo_rl": (
        "NeMo-RL Timer.time",
        """
from nemo_rl.utils.timer import Timer
timer = Timer()
def scope():
    return timer.time("policy_training")
""",
    ),
    "sample_factory": (
        "Sample Factory add_time",
        """
from sample_factory.utils.timing import Timing
timing = Timing()
def scope():
    return timing.add_time("train")
""",
    ),
}
_LOOP = """
import json, sys, time

def loop(count, scope):
    start = time.perf_counter_ns()
    for _ in range(count):
        with scope():
            pass
    return time.perf_counter_ns() - start

def empty(count):
    start = time.perf_counter_ns()
    for _ in range(count):
        pass
    return time.perf_counter_ns() - start

count = int(sys.argv[1])
best = min(loop(count, scope) for _ in range(20)) - min(empty(count) for _ in range(20))
print("result", json.dumps(max(0, best) / count))
"""


def measure(framework: str, integrated: bool, count: int) -> float:
    """Nanoseconds for a scope."""
    install = f"import gpuprof_{framework} as it; it.install_in_worker()\n"
    program = (install if integrated else "") + SCOPES[framework][1] + _LOOP
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(count)],
        check=True,
        capture_output=True,
        text=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("result ")]
    nanoseconds: float = json.loads(line.removeprefix("result "))
    return nanoseconds


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scopes", type=int, default=1_000, help="in a row; 20 times a process")
    options = parser.parse_args()
    rows = []
    for framework, (name, _) in SCOPES.items():
        tried = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCOPES[framework][1]],
            check=False,
            capture_output=True,
            text=True,
        )
        if tried.returncode:  # also where it is installed without what it needs
            print(f"left out: {name}: {tried.stderr.splitlines()[-1]}")
            rows.append([name, "cannot be imported", "", "", ""])
            continue
        turns = [
            (measure(framework, False, options.scopes), measure(framework, True, options.scopes))
            for _ in range(options.rounds)
        ]
        alone, integrated = map(min, zip(*turns, strict=True))
        rows.append([name, alone, integrated, integrated - alone, integrated / alone])
    print(
        tabulate(
            rows,
            headers=["scope, ns", "alone", "with gpuprof", "difference", "ratio"],
            floatfmt=(".0f", ".0f", ".0f", "+.0f", ".2f"),
            tablefmt="simple",
        )
    )


if __name__ == "__main__":
    main()

"""What a phase of a sample costs, beside a scope of the timing tree and beside nothing recorded.

One process, in turns, so that whatever else the machine does falls on all of it alike. The numbers
are the processor's time of one thread: what the job's thread does in a `with` block, and what the
control thread does later. The goals are held against the minimum, which noise can hardly lower.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gpuprof
from gpuprof._session import public
from gpuprof._session.ledger import LedgerWriter, make_header
from gpuprof._session.samples import Samples
from gpuprof._shim.row import LedgerLimits
from gpuprof_timing import Timing, compiled
from tabulate import tabulate

GOAL = 1_000.0
"""Nanoseconds of a phase."""
GOAL_OFF = 200.0
"""Nanoseconds of a phase in a process that is not recorded."""
TOLERANCE = 1.1
"""As in `timing_overhead.py`: shared machines are noisy."""
COUNT = 20_000
"""Phases between two writes."""
_BUDGET: LedgerLimits = {"bytes_per_step": 10**9, "total": 10**12}  # nothing is thinned
_IDS = [f"step 3, prompt {number}" for number in range(COUNT)]
_NOW = time.thread_time_ns


def empty(_: Timing) -> None:
    """The loop itself."""
    for _id in _IDS:
        pass


def scope(timing: Timing) -> None:
    """A scope of the tree, with its ledger."""
    for _id in _IDS:
        with timing.add_time("generate"):
            pass


def phase(_: Timing) -> None:
    """A phase."""
    for sample in _IDS:
        with gpuprof.sample(sample, phase="generate"):
            pass


def noted(_: Timing) -> None:
    """A phase with two notes."""
    for sample in _IDS:
        with gpuprof.sample(sample, phase="generate") as generation:
            generation.note(tokens=512, version=3)


SUBJECTS: dict[str, tuple[Callable[[Timing], None], bool]] = {
    f"add_time, with its ledger{', compiled' if compiled else ''}": (scope, True),
    "sample": (phase, True),
    "sample with two notes": (noted, True),
    "sample, not recorded": (phase, False),
}


def main() -> int:
    """Print the table; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    timing = Timing("benchmark", enabled=True)
    costs: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    writing: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    with tempfile.TemporaryDirectory() as directory:
        header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
        path = str(Path(directory) / "benchmark.ledger")
        ledger = LedgerWriter(path, header, _BUDGET, print)
        ledger.begin()
        gc.disable()
        for _ in range(rounds):
            for name, (subject, is_recorded) in SUBJECTS.items():
                public._driver_ledger = ledger if is_recorded else None
                costs[name].append(_time(partial(subject, timing)) - _time(partial(empty, timing)))
                writing[name].append(_time(ledger.drain))
            ledger.samples = Samples(time.perf_counter_ns, 10**12)  # new ids in each round
            gc.collect()
        ledger.end()
    rows = [
        [name, min(costs[name]), min(writing[name]) if is_recorded else 0.0]
        for name, (_, is_recorded) in SUBJECTS.items()
    ]
    print(
        tabulate(rows, ["nanoseconds of", "the job's thread", "the control thread"], floatfmt=".0f")
    )
    print(f"goals: a sample {GOAL:.0f} ns, not recorded {GOAL_OFF:.0f} ns")
    missed = min(costs["sample"]) > GOAL * TOLERANCE
    missed |= min(costs["sample, not recorded"]) > GOAL_OFF * TOLERANCE
    return int(missed)


def _time(call: Callable[[], object]) -> float:
    """Nanoseconds of one of `COUNT` repetitions in a call."""
    began = _NOW()
    call()
    return (_NOW() - began) / COUNT


if __name__ == "__main__":
    sys.exit(main())

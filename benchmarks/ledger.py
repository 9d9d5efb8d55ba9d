"""What the ledger costs: a scope beside the same without it, and the bytes of a rank and step.

One process, in turns, so that whatever else the machine does falls on all of it alike. Each sample
is the processor's time of one thread, and has all of the ledger's work in it: what a scope does in
the job's thread, the marks at the edges of steps, and what the control thread does in a second,
which here runs in the same thread. The file is made before. The goals are held against the medians.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from gpuprof._artifacts.ledger import SPAN, read
from gpuprof._session.blocks import BLOCK
from gpuprof._session.collector import Collections
from gpuprof._session.ledger import LedgerWriter, make_header
from gpuprof._shim.row import LedgerLimits
from gpuprof_timing import Timing, compiled
from tabulate import tabulate

GOAL_NS = 120.0
"""Nanoseconds that the ledger adds to a scope."""
GOAL_SCOPE_NS = 10.0 if compiled else 100.0
"""The same, of the scope alone."""
GOAL_BYTES = 3_000.0
"""Bytes of a rank and step with 20 scopes."""
GOAL_READING = 3.0
"""Seconds for ten million spans."""
TOLERANCE = 1.1
"""As in `timing_overhead.py`: shared machines are noisy."""
_BUDGET: LedgerLimits = {"bytes_per_step": 10**9, "total": 10**12}  # nothing is thinned
_NOW = time.thread_time_ns


def flat(timing: Timing, count: int) -> None:
    """Scopes beside each other, as 20 in a training step."""
    for number in range(count):
        with timing.add_time(_KEYS[number]):
            pass


def nested(timing: Timing, count: int) -> None:
    """Scopes in one, as in a training step that is a scope itself."""
    with timing.add_time("step"):
        for number in range(count - 1):
            with timing.add_time(_KEYS[number]):
                pass


def hot(timing: Timing, count: int) -> None:
    """One place again and again, as in a loop over samples."""
    with timing.add_time("epoch"):
        for _ in range(count - 1):
            with timing.add_time("sample"):
                pass


_KEYS = [f"scope {number}" for number in range(20)]


class Subject(NamedTuple):
    """A step to measure.

    Args:
        name: what the table calls it.
        body: the scopes of a step.
        scopes: how many.
        steps: steps between two writes of the ledger, which come each second.
    """

    name: str
    body: Callable[[Timing, int], None]
    scopes: int
    steps: int


SUBJECTS = [
    Subject("20 scopes a step, side by side", flat, 20, 100),
    Subject("20 scopes a step, in one", nested, 20, 100),
    Subject("1,000 scopes a step, in a loop", hot, 1000, 20),
]


class Cost(NamedTuple):
    """A sample, in nanoseconds for each scope.

    Args:
        without: of the ledger.
        scope: what it adds in the scope.
        edges: what it adds at the edges of its step.
        drain: what it adds on the control thread.
        size: bytes for each step.
    """

    without: float
    scope: float
    edges: float
    drain: float
    size: float

    @property
    def added(self) -> float:
        """All of it."""
        return self.scope + self.edges + self.drain


def sample(subject: Subject, directory: Path, seconds: int) -> Cost:
    """Measure some seconds of a job, without the ledger and with it."""
    timing = Timing("benchmark", enabled=True)
    scopes = subject.scopes * subject.steps * seconds
    path = directory / "benchmark.ledger"
    path.unlink(missing_ok=True)
    header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
    subject.body(timing, subject.scopes)  # makes the places

    def run(ledger: LedgerWriter | None) -> tuple[int, int]:
        working = draining = 0
        for second in range(seconds):
            began = _NOW()
            for step in range(subject.steps):
                number = second * subject.steps + step
                with _Marked(ledger, number) if ledger is not None else nullcontext():
                    subject.body(timing, subject.scopes)
            working += _NOW() - began
            began = _NOW()
            if ledger is not None:
                ledger.drain()
            draining += _NOW() - began
        return working, draining

    without, _ = run(None)
    ledger = LedgerWriter(str(path), header, _BUDGET, _fail)
    ledger.begin()
    subject.body(timing, subject.scopes)
    ledger.drain()  # makes the file
    working, draining = run(ledger)
    edges = edge_cost(ledger, subject.steps * seconds)
    size = path.stat().st_size
    ledger.end()
    return Cost(
        without / scopes,
        (working - without - edges) / scopes,
        edges / scopes,
        draining / scopes,
        size / (subject.steps * seconds),
    )


def edge_cost(ledger: LedgerWriter, steps: int) -> int:
    """Nanoseconds for the edges of so many steps."""
    began = _NOW()
    for number in range(steps):
        with _Marked(ledger, number):
            pass
    marked = _NOW()
    for _ in range(steps):
        with nullcontext():
            pass
    return 2 * marked - began - _NOW()


def reading(directory: Path, spans: int) -> float:
    """Seconds of the processor for reading so many spans, of a process that wrote each second."""
    import numpy as np

    per_second = 2_000
    path = directory / "large.ledger"
    header = make_header("run", "A-0", "A", 0, "node", "1", "worker")
    ledger = LedgerWriter(str(path), header, _BUDGET, _fail)
    ledger.begin()
    flat(Timing("benchmark", enabled=True), 20)
    ledger.end()
    rows = np.zeros(per_second, SPAN)
    rows["place"], rows["track"] = np.arange(per_second) % 20 + 1, 1
    with path.open("ab") as file:
        for second in range(spans // per_second):
            rows["start"] = second * 10**9 + np.arange(per_second)
            rows["end"] = rows["start"] + 1
            content = rows.tobytes()
            file.write(BLOCK.pack(b"span", len(content), zlib.crc32(content, zlib.crc32(b"span"))))
            file.write(content)
    began = time.process_time()
    read(path)
    return time.process_time() - began


class _Marked:
    """A step, as `gpuprof.step` marks it."""

    __slots__ = ("_ledger", "_number")

    def __init__(self, ledger: LedgerWriter, number: int) -> None:
        self._ledger = ledger
        self._number = number

    def __enter__(self) -> None:
        self._ledger.begin_step(self._number)

    def __exit__(self, *error: object) -> None:
        self._ledger.end_step(self._number)


def _fail(problem: str) -> None:
    raise RuntimeError(problem)


def collector(rounds: int) -> float:
    """Nanoseconds that a run of the garbage collector takes longer as it is timed."""
    collections, calls = Collections(time.perf_counter_ns), 1000
    differences = []
    for _ in range(rounds):
        took = []
        for timed in (False, True):
            if timed:
                collections.begin()
            began = _NOW()
            for _ in range(calls):
                gc.collect(0)
            took.append(_NOW() - began)
            collections.end()
        differences.append((took[1] - took[0]) / calls)
    return statistics.median(differences)


def main() -> int:
    """Measure, print the table, and say by the exit code whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="samples (default: 40)")
    parser.add_argument("--seconds", type=int, default=5, help="writes in a sample (default: 5)")
    parser.add_argument(
        "--spans", type=int, default=10**7, help="spans to read (default: 10000000)"
    )
    given = parser.parse_args()
    print(f"scopes: {'compiled' if compiled else 'in Python'}")
    samples: dict[str, list[Cost]] = {subject.name: [] for subject in SUBJECTS}
    gc.disable()
    with tempfile.TemporaryDirectory() as directory:
        for round_number in range(given.rounds + 1):
            for subject in SUBJECTS:
                taken = sample(subject, Path(directory), given.seconds)
                if round_number:  # the first one warms caches
                    samples[subject.name].append(taken)
            gc.collect()
    medians = {
        name: Cost(*(statistics.median(column) for column in zip(*taken, strict=True)))
        for name, taken in samples.items()
    }
    rows = [
        [name, cost.without, cost.scope, cost.edges, cost.drain, cost.added, cost.size]
        for name, cost in medians.items()
    ]
    headers = [
        "", "without ns", "in the scope ns", "at edges ns", "on the thread ns", "added ns",
        "bytes a step",
    ]  # fmt: skip
    print(tabulate(rows, headers, tablefmt="github", floatfmt=".0f"))
    with tempfile.TemporaryDirectory() as directory:
        seconds = reading(Path(directory), given.spans)
    print(f"{given.spans} spans read: {seconds:.2f} s of a processor")
    print(f"a run of the garbage collector: {collector(given.rounds):.0f} ns longer")
    goals = [(name, cost.added, GOAL_NS, "ns") for name, cost in medians.items()]
    goals += [
        (f"{name}, in the scope", cost.scope, GOAL_SCOPE_NS, "ns") for name, cost in medians.items()
    ]
    goals += [
        (name, cost.size, GOAL_BYTES, "bytes")
        for (name, cost), subject in zip(medians.items(), SUBJECTS, strict=True)
        if subject.scopes == 20
    ]
    goals.append(("reading", seconds * 10**7 / given.spans, GOAL_READING, "s for ten million"))
    for name, found, goal, unit in goals:
        verdict = "met" if found <= goal else "missed"
        print(f"{verdict}: {name}: {found:.3g} {unit}, goal {goal:.3g}")
    return int(any(found > goal * TOLERANCE for _, found, goal, _ in goals))


if __name__ == "__main__":
    sys.exit(main())

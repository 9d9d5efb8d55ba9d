"""What gpuprof costs on a GPU: events, torch's profiler, and a reading of NVML.

Prints Markdown for docs/performance.md, with the card's name. A row that needs CUDA says "no card"
where there is none; the others then run on the CPU, which tries them and measures nothing of use.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import gpuprof_timing
import torch
from gpuprof.backend import Window, Worker
from gpuprof_timing import Timing
from tabulate import tabulate

NO_CARD = "no card"
CARD = torch.cuda.is_available()
DEVICE = "cuda" if CARD else "cpu"
SCOPES = 500
"""Scopes in a row: fewer than the events that a tree keeps for reuse."""


def settle() -> None:
    """Wait until the card has nothing to do."""
    if CARD:
        torch.cuda.synchronize()


def least(rounds: int, work: Callable[[], object], after: Callable[[], object]) -> float:
    """Microseconds of one piece of work, the least of all rounds of `SCOPES`."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        for _ in range(SCOPES):
            work()
        best = min(best, (time.perf_counter_ns() - begun) / SCOPES / 1e3)
        after()
    return best


def events(rounds: int) -> list[list[object]]:
    """A scope without and with events, and what torch takes for a pair of events."""
    timing = Timing("events")

    def scope() -> None:
        with timing.add_time("cpu"):
            pass

    def device_scope() -> None:
        with timing.add_time("cuda", device="cuda"):
            pass

    def pair() -> None:
        stream = torch.cuda.current_stream()
        torch.cuda.Event(enable_timing=True).record(stream)
        torch.cuda.Event(enable_timing=True).record(stream)

    def read() -> float:
        begun = time.perf_counter_ns()
        timing.to_dict(device="wait")
        return (time.perf_counter_ns() - begun) / SCOPES / 1e3

    rows: list[list[object]] = [["a scope", least(rounds, scope, settle)]]
    if not CARD:
        names = ('a scope, device="cuda"', "the same, read by a report", "two events of torch")
        return rows + [[name, NO_CARD] for name in names]
    device_scope()
    reads: list[float] = []
    cost = least(rounds, device_scope, lambda: (settle(), reads.append(read())))
    rows.append(['a scope, device="cuda"', cost])
    rows.append(["the same, read by a report", min(reads)])
    rows.append(["two events of torch", least(rounds, pair, settle)])
    return rows


def nvml(rounds: int) -> list[list[object]]:
    """A reading of the card's utilisation, memory, clock and reasons for throttling."""
    name = "a reading of NVML: utilisation, memory, clock, throttling"
    if not CARD:
        return [[name, NO_CARD]]
    if importlib.util.find_spec("pynvml") is None:
        return [[name, "no nvidia-ml-py"]]
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)

    def read() -> None:
        pynvml.nvmlDeviceGetUtilizationRates(card)
        pynvml.nvmlDeviceGetMemoryInfo(card)
        pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM)
        pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(card)

    durations = []
    for _ in range(10 * rounds):
        begun = time.perf_counter_ns()
        read()
        durations.append((time.perf_counter_ns() - begun) / 1e3)
    pynvml.nvmlShutdown()
    return [[name, statistics.median(durations)]]


def training() -> Callable[[], None]:
    """A step of training, which waits for the device at its end."""
    size = 2048 if CARD else 64
    model = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(8))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.ones(size, size, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def steps(rounds: int) -> list[list[object]]:
    """A step of training by itself, with events around it, and while torch's profiler runs."""
    names = ("a step of training", 'the same, 10 scopes with device="cuda"')
    profiled = "the same, inside torch's profiler"
    step, timing = training(), Timing("steps")

    def with_events() -> None:
        for number in range(9):
            with timing.add_time(f"scope {number}", device="cuda"):
                pass
        with timing.add_time("step", device="cuda"):
            step()

    for _ in range(5):
        with_events()
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(10 * rounds):
        for name, work in zip(names, (step, with_events), strict=True):
            begun = time.perf_counter_ns()
            work()
            times[name].append((time.perf_counter_ns() - begun) / 1e3)
    rows: list[list[object]] = [[name, statistics.median(found)] for name, found in times.items()]
    if importlib.util.find_spec("gpuprof_torch_profiler") is None:
        return [*rows, [profiled, "no gpuprof-torch-profiler"]]
    return [*rows, *in_window(step, profiled)]


def in_window(step: Callable[[], None], name: str) -> list[list[object]]:
    """A step while torch's profiler runs, and opening and closing its window."""
    from gpuprof_torch_profiler import TorchProfilerBackend
    from gpuprof_torch_profiler._options import TorchProfilerOptions

    window, inside = Window(1, 3, 4), []
    with tempfile.TemporaryDirectory() as directory:
        worker = Worker("run", "A", 0, "node", "1", directory, (window,))
        for _ in range(2):  # the first window loads what all need
            backend = TorchProfilerBackend(TorchProfilerOptions())
            begun = time.perf_counter_ns()
            backend.start_capture(worker=worker, window=window)
            opened = time.perf_counter_ns()
            for _ in range(5):
                before = time.perf_counter_ns()
                step()
                inside.append((time.perf_counter_ns() - before) / 1e3)
            closing = time.perf_counter_ns()
            backend.stop_capture()
            closed = time.perf_counter_ns()
    return [
        [name, statistics.median(inside[-4:])],
        ["opening its window, the second time", (opened - begun) / 1e3],
        ["closing it after five steps", (closed - closing) / 1e3],
    ]


def tests(results: str) -> str:
    """How many tests passed, failed, and were skipped, by pytest's file of results."""
    try:
        suite = ElementTree.parse(results).getroot().find("testsuite")
    except ElementTree.ParseError:
        suite = None
    if suite is None:
        return "Tests: none, as pytest did not start."
    count, skipped, failed = (int(suite.get(key, 0)) for key in ("tests", "skipped", "failures"))
    failed += int(suite.get("errors", 0))
    return f"Tests: {count - skipped - failed} passed, {failed} failed, {skipped} skipped."


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tests", help="results of pytest, which the heading sums up")
    arguments = parser.parse_args()
    card = torch.cuda.get_device_name() if CARD else NO_CARD
    python = ".".join(str(part) for part in sys.version_info[:2])
    kind = "compiled" if gpuprof_timing.compiled else "in Python"
    print(f"## On a GPU: {card}\n")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, Python {python}, scopes {kind}.")
    if arguments.tests:
        print(tests(arguments.tests))
    rows = [*events(arguments.rounds), *steps(arguments.rounds), *nvml(arguments.rounds)]
    texts = [[name, f"{v:,.1f}" if isinstance(v, float) else v] for name, v in rows]
    print("\n" + tabulate(texts, ["what", "µs"], tablefmt="github", colalign=("left", "right")))


if __name__ == "__main__":
    main()

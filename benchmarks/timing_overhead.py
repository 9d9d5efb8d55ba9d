"""What one timing scope costs, beside the least that any could cost and beside what else there is.

Everything is measured in one process and interleaved, so that whatever else the machine does falls
on all of it alike. Every subject is the same loop around `with ...: pass`, with the garbage
collector off; the time of the empty loop is taken off. The goals are held against the minimum,
which noise can hardly lower. What is not installed is left out and named.

Where the hot path of scopes is compiled, both it and the Python one are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib
import importlib.util
import logging
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import timeit
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import gpuprof_timing
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.both_timings import in_python

LOOP = "the empty loop"
EMPTY = "an empty context manager"
FLOOR = "an empty context manager and two clock calls"
C_FLOOR = "the same in C"
PURE = "add_time"
SUM = "add_time, compiled"
KEPT = "add_time, a scope that is kept, compiled"
DISABLED = "add_time, switched off"
SAMPLE_FACTORY = "Sample Factory Timing.add_time"
NVTX = "nvtx.annotate, no tool"
TOLERANCE = 1.1
"""Shared machines are noisy, and one run's minimum moves by some per cent: only what is missed by
more fails."""


class Empty:
    """The least that a context manager written in Python can do."""

    __slots__ = ()

    def __enter__(self) -> Empty:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Clocked:
    """The least that one that takes the time can do."""

    __slots__ = ("ended", "started")

    def __enter__(self) -> Clocked:
        self.started = time.perf_counter_ns()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = time.perf_counter_ns()


@contextlib.contextmanager
def nothing_else() -> Iterator[None]:
    """A process that has imported neither torch nor asyncio, as far as the scope sees."""
    hidden = {name: sys.modules.pop(name) for name in ("torch", "asyncio") if name in sys.modules}
    try:
        yield
    finally:
        sys.modules.update(hidden)


@contextlib.contextmanager
def with_ranges(package: Any) -> Iterator[None]:
    """A range opener that costs as little as one can."""
    empty = Empty()
    with nothing_else():
        package.set_range_opener(lambda name, crosses_tasks: empty)
        try:
            yield
        finally:
            package.set_range_opener(None)


class Subject(NamedTuple):
    """Something to measure.

    Args:
        name: what the table calls it.
        statement: what is repeated.
        names: what the statement refers to.
        around: the surroundings in which it is measured.
        in_loop: whether an event loop runs around it.
        kind: how the plot colours it.
    """

    name: str
    statement: str
    names: dict[str, Any]
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    in_loop: bool = False
    kind: str = "others"

    def sample(self, iterations: int) -> float:
        """Nanoseconds for one iteration."""
        timer = timeit.Timer(self.statement, globals=self.names)

        async def timed() -> float:
            return timer.timeit(iterations)

        with self.around():
            seconds = asyncio.run(timed()) if self.in_loop else timer.timeit(iterations)
        return seconds / iterations * 1e9


def c_floor() -> Subject:
    """The least in C, compiled here."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"floor{suffix}")
        include = sysconfig.get_paths()["include"]
        source = Path(__file__).with_name("floor.c")
        command = ["cc", "-O3", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(path)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ImportError(f"no C compiler: {error}") from None
        spec = importlib.util.spec_from_file_location("floor", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return Subject(C_FLOOR, "with Clocked(): pass", {"Clocked": module.Clocked}, kind="floors")


def ours(package: Any) -> list[Subject]:
    """This package, in all the ways that it is used."""
    timing = package.Timing("benchmark", enabled=True)
    disabled = package.Timing("benchmark", enabled=False)
    way = ", compiled" if package.compiled else ""

    @timing.add_time("a")
    def decorated() -> None:
        pass

    @disabled.add_time("a")
    def decorated_disabled() -> None:
        pass

    def subject(name: str, *how: Any, **more: Any) -> Subject:
        return Subject(name + way, *how, kind="ours", **more)

    scope = 'with timing.add_time("a"): pass'
    return [
        subject(PURE, scope, {"timing": timing}, nothing_else),
        subject("add_time, torch and asyncio imported", scope, {"timing": timing}),
        subject("add_time, in an event loop", scope, {"timing": timing}, in_loop=True),
        subject(
            "add_time, a scope that is kept",
            "with scope: pass",
            {"scope": timing.add_time("a")},
            nothing_else,
        ),
        subject("add_time, as a decorator", "decorated()", {"decorated": decorated}, nothing_else),
        subject(
            "add_time, a range opener set",
            scope,
            {"timing": timing},
            functools.partial(with_ranges, package),
        ),
        subject(DISABLED, scope, {"timing": disabled}, nothing_else),
        subject(
            "add_time, as a decorator, switched off",
            "decorated()",
            {"decorated": decorated_disabled},
            nothing_else,
        ),
    ]


def sample_factory() -> Subject:
    """The module alone, with stand-ins for the imports that `add_time` does not use."""
    stand_ins: dict[str, Any] = {
        "psutil": types.ModuleType("psutil"),
        "sample_factory.utils.utils": types.SimpleNamespace(log=logging.getLogger()),
        "sample_factory.algo.utils.misc": types.SimpleNamespace(EPS=1e-8),
    }
    with mock.patch.dict(sys.modules, stand_ins):
        module = importlib.import_module("sample_factory.utils.timing")
    return Subject(SAMPLE_FACTORY, 'with timing.add_time("a"): pass', {"timing": module.Timing()})


def codetiming() -> Subject:
    """A timer as its documentation has it, less the line that it logs."""
    module = importlib.import_module("codetiming")
    return Subject(
        "codetiming.Timer", 'with Timer("a", logger=None): pass', {"Timer": module.Timer}
    )


def lightning() -> Subject:
    """The profiler of Lightning's trainer."""
    module = importlib.import_module("lightning.pytorch.profilers")
    return Subject(
        "Lightning SimpleProfiler",
        'with profiler.profile("a"): pass',
        {"profiler": module.SimpleProfiler()},
    )


def nvtx() -> Subject:
    """A range, no tool being attached."""
    return Subject(
        NVTX,
        'with nvtx.annotate("a"): pass',
        {"nvtx": importlib.import_module("nvtx")},
    )


def record_function() -> Subject:
    """A range, no profiler running."""
    module = importlib.import_module("torch.profiler")
    statement = 'with record_function("a"): pass'
    return Subject(
        "torch record_function, no profiler", statement, {"record_function": module.record_function}
    )


def opentelemetry() -> Subject:
    """A span that is recorded and goes nowhere."""
    tracer = (
        importlib.import_module("opentelemetry.sdk.trace").TracerProvider().get_tracer("benchmark")
    )
    return Subject(
        "OpenTelemetry span, no exporter",
        'with tracer.start_as_current_span("a"): pass',
        {"tracer": tracer},
    )


class Worker:
    """What RLinf's and verl's workers have to do with their timers and ranges, as no tool runs.

    Written after what theirs do, step by step. `integration_cost.py` has the frameworks' own, where
    they are installed.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.profiler: Any = types.SimpleNamespace(enabled=False)

    @contextlib.contextmanager
    def time(self, tag: str) -> Iterator[None]:
        """As RLinf: a generator, a clock in seconds, a sum for each tag."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.metrics[tag] = self.metrics.get(tag, 0.0) + time.perf_counter() - began

    def range(self, tag: str) -> contextlib.AbstractContextManager[None]:
        """As RLinf: nothing while no window is open."""
        return contextlib.nullcontext()

    @staticmethod
    def timed(tag: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As RLinf: a method with its timer and its range."""

        def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(method)
            def call(self: Worker, *args: Any, **named: Any) -> Any:
                with self.time(tag), self.range(tag):
                    return method(self, *args, **named)

            return call

        return decorate

    @staticmethod
    def annotated(role: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As verl: a method that asks its worker's profiler, and times nothing."""

        def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(method)
            def call(self: Worker, *args: Any, **named: Any) -> Any:
                profiler = getattr(self, "profiler", None)
                if not profiler or not profiler.enabled:
                    return method(self, *args, **named)
                raise NotImplementedError(role)

            return call

        return decorate


class Timed(Worker):
    """A worker with a method of each kind."""

    @Worker.timed("a")
    def train(self) -> None:
        """Like RLinf's."""

    @Worker.annotated("a")
    def update(self) -> None:
        """Like verl's."""


def rlinf() -> list[Subject]:
    """The timer of RLinf's workers, and the decorator that adds a range."""
    worker = {"worker": Timed()}
    return [
        Subject("like RLinf's timer", 'with worker.time("a"): pass', worker),
        Subject("like RLinf's timer, as a decorator", "worker.train()", worker),
    ]


def verl() -> list[Subject]:
    """Its timer with codetiming's in it, the same with a range, and its decorator of methods."""
    timer = importlib.import_module("codetiming").Timer
    tool = importlib.import_module("nvtx")

    def timed(name: str, sums: dict[str, float]) -> Iterator[None]:
        with timer(name=name, logger=None) as taken:
            yield
        if name not in sums:
            sums[name] = 0
        sums[name] += taken.last

    @contextlib.contextmanager
    def simple_timer(name: str, sums: dict[str, float]) -> Iterator[None]:
        yield from timed(name, sums)

    @contextlib.contextmanager
    def marked_timer(name: str, sums: dict[str, float], color: str) -> Iterator[None]:
        started = tool.start_range(message=name, color=color)
        yield from timed(name, sums)
        tool.end_range(started)

    names = {"simple_timer": simple_timer, "marked_timer": marked_timer, "sums": {}}
    return [
        Subject("like verl's simple_timer", 'with simple_timer("a", sums): pass', names),
        Subject(
            "like verl's marked_timer, no tool",
            'with marked_timer("a", sums, "red"): pass',
            names,
        ),
        Subject(
            "like verl's DistProfiler.annotate, no tool", "worker.update()", {"worker": Timed()}
        ),
    ]


def find_subjects() -> list[Subject]:
    """All that can be measured here; says what cannot."""
    subjects = [
        Subject(LOOP, "pass", {}, kind="floors"),
        Subject(EMPTY, "with Empty(): pass", {"Empty": Empty}, kind="floors"),
        Subject(FLOOR, "with Clocked(): pass", {"Clocked": Clocked}, kind="floors"),
        *ours(in_python()),
        *(ours(gpuprof_timing) if gpuprof_timing.compiled else []),
    ]
    finders: list[Callable[[], Subject | list[Subject]]] = [
        c_floor,
        sample_factory,
        codetiming,
        lightning,
        nvtx,
        record_function,
        opentelemetry,
        rlinf,
        verl,
    ]
    for find in finders:
        try:
            found = find()
            subjects += found if isinstance(found, list) else [found]
        except ImportError as error:
            print(f"left out: {find.__name__} ({error})")
    return subjects


def measure(subjects: list[Subject], rounds: int, iterations: int) -> dict[str, list[float]]:
    """Samples of every subject in nanoseconds, taken in turn, after one that is thrown away."""
    samples: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for subject in subjects:
        subject.sample(iterations)
    for _ in range(rounds):
        for subject in subjects:
            samples[subject.name].append(subject.sample(iterations))
    return samples


def plot(subjects: list[Subject], least: dict[str, float], path: str) -> None:
    """Write the minima as bars, as an SVG that is the same for the same figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "gpuprof",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.size": 10,
        }
    )
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    colours = {"floors": "#9e9e9e", "ours": "#2b6cb0", "others": "#dd8452"}
    titles = {"floors": "the least possible", "ours": "gpuprof-timing", "others": "others"}
    shown = sorted(
        (subject for subject in subjects if subject.name != LOOP),
        key=lambda subject: -least[subject.name],
    )
    figure, axes = pyplot.subplots(figsize=(9, 0.34 * len(shown) + 1))
    names = [subject.name for subject in shown]
    bars = axes.barh(
        names, [least[name] for name in names], color=[colours[subject.kind] for subject in shown]
    )
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.set_xscale("log")
    axes.set_xlim(50, max(least.values()) * 1.6)
    axes.set_xlabel("ns per scope, minimum (logarithmic)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        handles=[Patch(color=colours[kind], label=titles[kind]) for kind in colours],
        loc="upper right",
        frameon=False,
    )
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Measure, print the table, and say by the exit code whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=300, help="samples of each subject (default: 300)"
    )
    parser.add_argument(
        "--iterations", type=int, default=1_000, help="scopes in a sample (default: 1000)"
    )
    parser.add_argument("--plot", metavar="FILE", help="also write a plot as SVG; needs matplotlib")
    arguments = parser.parse_args()

    print(f"scopes: {'compiled, and in Python' if gpuprof_timing.compiled else 'in Python'}")
    subjects = find_subjects()
    samples = measure(subjects, arguments.rounds, arguments.iterations)
    loop = min(samples.pop(LOOP))
    least = {name: min(values) - loop for name, values in samples.items()}
    theirs = least.get(SAMPLE_FACTORY)
    rows = [
        [
            name,
            least[name],
            statistics.median(values) - loop,
            least[name] / least[FLOOR],
            theirs and least[name] / theirs,
        ]
        for name, values in samples.items()
    ]
    headers = ["what", "min ns", "median ns", "to the clock floor", "to Sample Factory"]
    print(tabulate(rows, headers, tablefmt="github", floatfmt=("", ".0f", ".0f", ".2f", ".2f")))
    print(f"The empty loop, taken off: {loop:.1f} ns.")

    goals = [(PURE, FLOOR, 3.0), (PURE, SAMPLE_FACTORY, 0.36), (DISABLED, EMPTY, 1.3)]
    if gpuprof_timing.compiled:
        goals += [
            (SUM, C_FLOOR, 1.7), (SUM, SAMPLE_FACTORY, 1 / 9), (SUM, NVTX, 1.0),
            (KEPT, C_FLOOR, 1.0), (KEPT, SAMPLE_FACTORY, 1 / 18),
        ]  # fmt: skip
    failed = False
    for name, other, goal in goals:
        if other not in least:
            print(f"not checked: {name}: no {other}")
            continue
        ratio = least[name] / least[other]
        failed = failed or ratio > goal * TOLERANCE
        print(
            f"{'met' if ratio <= goal else 'missed'}: {name}: {ratio:.2f} of {other}, goal "
            f"{goal:.2f}"
        )
    if arguments.plot:
        plot(subjects, least, arguments.plot)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What verl itself has of each of its instruments, used in each way it offers; written as JSON."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl.utils.profiler import DistProfiler, nvtx_profile, performance, profile


class Worker:
    """As verl's workers: an annotated method asks its profiler whether to annotate."""

    def __init__(self, profiler: DistProfiler | None) -> None:
        self.profiler = profiler

    @DistProfiler.annotate(message="by message", color="red")
    def by_message(self, number: int) -> int:
        """Doubles."""
        return 2 * number

    @DistProfiler.annotate(color="red", role="by role")
    def by_role(self, number: int, *, more: int = 0) -> int:
        return number + more

    @DistProfiler.annotate()
    def by_name(self) -> str:
        return "named"

    @DistProfiler.annotate("positional", "blue", "domain", "category")
    def positional(self) -> None:
        raise KeyError("positional")

    @DistProfiler.annotate(role="asynchronous")
    async def asynchronous(self, number: int) -> int:
        await asyncio.sleep(0)
        return -number

    @DistProfiler.annotate(role="asynchronous, raising")
    async def asynchronous_raising(self) -> None:
        await asyncio.sleep(0)
        raise KeyError("asynchronous")


def outcome(call: Callable[[], Any]) -> list[Any]:
    """What a call returns or raises."""
    try:
        result = call()
        return ["returned", asyncio.run(result) if inspect.iscoroutine(result) else result]
    except Exception as error:
        return ["raised", type(error).__name__, str(error)]


def raising() -> None:
    raise KeyError("inside")


def timers(make: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """A context manager that adds to a dictionary."""
    timing: dict[str, float] = {}

    def nested() -> str:
        with make("outer", timing, **options), make(name="inner", timing_raw=timing, **options):
            return "done"

    def failing() -> None:
        with make("failing", timing, **options):
            raising()

    def twice() -> bool:
        before = timing["outer"]
        nested()
        return timing["outer"] > before

    async def two() -> None:
        async def one(name: str) -> None:
            with make(name, timing, **options):
                await asyncio.sleep(0.001)

        await asyncio.gather(one("first"), one("second"))

    @make("decorating", timing, **options)
    def decorated(number: int) -> int:
        """Theirs."""
        return number + 1

    return {
        "nested": outcome(nested),
        "twice": outcome(twice),
        "failing": outcome(failing),
        "tasks": outcome(two),
        "decorated": [outcome(lambda: decorated(1)), decorated.__name__, decorated.__doc__],
        "timed": sorted(timing),
        "floats": all(isinstance(value, float) for value in timing.values()),
    }


def marks(module: Any) -> dict[str, Any]:
    """Ranges, and what they decorate."""

    def ranges() -> None:
        first = module.mark_start_range("first", "red", "domain", "category")
        second = module.mark_start_range(message="second", color="blue")
        module.mark_end_range(first)  # as they may overlap
        module.mark_end_range(range_id=second)
        module.mark_end_range(module.mark_start_range())

    @module.mark_annotate("annotated", "red", "domain", "category")
    def annotated(number: int) -> int:
        """Theirs."""
        return number * 2

    @module.mark_annotate(message="annotated, raising", color="red")
    def failing() -> None:
        raising()

    @module.mark_annotate()
    async def by_name() -> str:
        await asyncio.sleep(0)
        return "named"

    return {
        "ranges": outcome(ranges),
        "annotated": [outcome(lambda: annotated(2)), annotated.__name__, annotated.__doc__],
        "failing": outcome(failing),
        "by name": [outcome(by_name), by_name.__name__],
    }


def annotations(profiler: DistProfiler | None) -> dict[str, Any]:
    """The methods of a worker."""
    worker = Worker(profiler)
    return {
        "by message": outcome(lambda: worker.by_message(2)),
        "by role": outcome(lambda: worker.by_role(2, more=3)),
        "by name": outcome(worker.by_name),
        "positional": outcome(worker.positional),
        "asynchronous": outcome(lambda: worker.asynchronous(3)),
        "asynchronous, raising": outcome(worker.asynchronous_raising),
        "documented": [Worker.by_message.__name__, Worker.by_message.__doc__],
    }


done = {
    "simple_timer": timers(performance.simple_timer),
    "marked_timer": timers(performance.marked_timer, color="red", domain="d", category="c"),
    "marked_timer, nvtx": timers(nvtx_profile.marked_timer, color="red"),
    "marks": marks(profile),
    "marks, nvtx": marks(nvtx_profile),
    "annotations": annotations(None),
    "annotations, a profiler that is off": annotations(DistProfiler(rank=0)),
}
Path(sys.argv[1]).write_text(json.dumps(done))

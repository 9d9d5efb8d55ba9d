"""What RLinf itself has of each of its instruments, used in each way it offers; written as JSON."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlinf.scheduler import Worker
from rlinf.scheduler.hardware.accelerators.accelerator import AcceleratorType, AcceleratorUtil
from rlinf.utils.distributed import ScopedTimer


class Timed(Worker):
    """A worker's timers, without the process of one."""

    def __new__(cls) -> Any:
        made = object.__new__(cls)
        made._timer_metrics = {}
        made._accelerator_type = AcceleratorType.NO_ACCEL
        return made

    def __init__(self) -> None:
        pass

    @Worker.timer("tagged")
    def tagged(self, number: int, *, more: int = 0) -> int:
        """Adds."""
        return number + more

    @Worker.timer()
    def by_name(self) -> str:
        return "named"

    @Worker.timer("raising")
    def raising(self) -> None:
        raise KeyError("inside")

    @Worker.timer("asynchronous")
    async def asynchronous(self, number: int) -> int:
        await asyncio.sleep(0)
        return -number

    @Worker.timer("asynchronous, raising")
    async def asynchronous_raising(self) -> None:
        await asyncio.sleep(0)
        raise KeyError("asynchronous")

    def by_caller(self) -> None:
        with self.worker_timer():
            pass

    def nested(self) -> None:
        with self.worker_timer("outer"), self.worker_timer(tag="inner"):
            pass

    def failing(self) -> None:
        with self.worker_timer("failing"):
            raise KeyError("inside")

    async def tasks(self) -> None:
        async def one(name: str) -> None:
            with self.worker_timer(name):
                await asyncio.sleep(0.001)

        await asyncio.gather(one("first"), one("second"))

    def decorating(self) -> list[int]:
        @self.worker_timer("decorating")
        def decorated(number: int) -> int:
            return number + 1

        return [decorated(1), decorated(2)]


def outcome(call: Callable[[], Any]) -> list[Any]:
    """What a call returns or raises."""
    try:
        result = call()
        return ["returned", asyncio.run(result) if inspect.iscoroutine(result) else result]
    except Exception as error:
        return ["raised", type(error).__name__, str(error)]


def worker() -> dict[str, Any]:
    """Each with what it leaves in the worker's metrics."""
    calls: dict[str, Callable[[Timed], Any]] = {
        "tagged": lambda timed: timed.tagged(1, more=2),
        "by name": lambda timed: timed.by_name(),
        "raising": lambda timed: timed.raising(),
        "asynchronous": lambda timed: timed.asynchronous(3),
        "asynchronous, raising": lambda timed: timed.asynchronous_raising(),
        "by caller": lambda timed: timed.by_caller(),
        "nested": lambda timed: timed.nested(),
        "failing": lambda timed: timed.failing(),
        "tasks": lambda timed: timed.tasks(),
        "decorating": lambda timed: timed.decorating(),
    }
    done = {}
    for name, call in calls.items():
        timed = Timed()
        result = outcome(lambda call=call, timed=timed: call(timed))
        done[name] = [result, sorted(timed.pop_execution_times()), timed.pop_execution_times()]
    done["documented"] = [Timed.tagged.__name__, Timed.tagged.__doc__]
    return done


def ranges() -> list[Any]:
    """Around nothing, around an exception, and by all of their arguments."""

    def plain() -> None:
        with AcceleratorUtil.profiling_range(AcceleratorType.NO_ACCEL, "plain"):
            pass

    def full() -> None:
        with AcceleratorUtil.profiling_range(
            accelerator_type=AcceleratorType.NO_ACCEL, label="full", color="red", domain="d"
        ):
            pass

    def failing() -> None:
        with AcceleratorUtil.profiling_range(AcceleratorType.NO_ACCEL, "failing"):
            raise KeyError("inside")

    return [outcome(plain), outcome(full), outcome(failing)]


def driver() -> dict[str, Any]:
    """The runners' timer, which refuses a name that comes again."""
    timer = ScopedTimer(reduction="sum", sync_cuda=False)

    def nested() -> None:
        with timer("step"), timer(name="generate"):
            pass

    def failing() -> None:
        with timer("failing"):
            raise KeyError("inside")

    def decorating() -> list[Any]:
        @timer("decorating")
        def decorated(number: int) -> int:
            return number + 1

        first = decorated(1)
        timer.consume_durations()
        return [first, decorated(2)]

    done = {"nested": outcome(nested), "again": outcome(nested), "failing": outcome(failing)}
    timed = sorted(timer.consume_durations())
    return {**done, "timed": timed, "decorating": outcome(decorating)}


done = {"worker": worker(), "ranges": ranges(), "driver": driver()}
Path(sys.argv[1]).write_text(json.dumps(done))

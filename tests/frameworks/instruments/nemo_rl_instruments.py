"""What NeMo-RL itself has of its timers, used in each way they offer; written as JSON."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nemo_rl.utils.timer import ThreadSafeTimer, Timer


def outcome(call: Callable[[], Any]) -> list[Any]:
    """What a call returns or raises."""
    try:
        return ["returned", call()]
    except Exception as error:
        return ["raised", type(error).__name__, str(error)]


def use(timer: Timer) -> dict[str, Any]:
    """Each way, then what the timer has."""

    def nested() -> None:
        with timer.time("outer"), timer.time(label="inner", should_log=False):
            pass

    def failing() -> None:
        with timer.time("failing"):
            raise KeyError("inside")

    def again() -> None:
        with timer.time("again"), timer.time("again"):
            pass

    def overlapping() -> list[bool]:
        timer.start("first")
        timer.start(label="second", should_log=False)
        return [timer.stop("first") >= 0, timer.stop(label="second") >= 0]

    def elsewhere() -> None:
        timer.start("elsewhere")
        thread = threading.Thread(target=timer.stop, args=("elsewhere",))
        thread.start()
        thread.join()

    def forgotten() -> None:
        timer.start("forgotten")
        timer.reset("forgotten")
        timer.stop("forgotten")

    def decorating() -> list[int]:
        @timer.time("decorating")
        def decorated(number: int) -> int:
            return number + 1

        return [decorated(1), decorated(2)]

    ways = (nested, failing, again, overlapping, elsewhere, forgotten, decorating)
    done: dict[str, Any] = {way.__name__: outcome(way) for way in ways}
    done["not running"] = outcome(lambda: timer.stop("never"))
    timer.record("recorded", 2.0)
    done["counts"] = dict(sorted(timer.get_timing_metrics("count").items()))
    done["recorded"] = timer.get_latest_elapsed("recorded")
    timer.start("open")
    timer.reset()
    done["after the reset"] = timer.get_timing_metrics()
    return done


done = {"Timer": use(Timer()), "ThreadSafeTimer": use(ThreadSafeTimer())}
Path(sys.argv[1]).write_text(json.dumps(done))

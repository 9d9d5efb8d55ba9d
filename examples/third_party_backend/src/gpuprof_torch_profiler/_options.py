"""The section `torch_profiler` of a configuration."""

from __future__ import annotations

from typing import Literal

import attrs
from gpuprof.backend import option
from gpuprof.errors import ConfigError

Activity = Literal["cpu", "cuda", "xpu", "mtia", "hpu", "privateuse1"]


@attrs.frozen
class Schedule:
    """Which parts of a window are recorded, counted in executions of one range."""

    every: str = option("the range whose ends are counted, such as actor/run_training")
    wait: int = option("how many to skip", default=0)
    warmup: int = option(
        "how many to trace and throw away: the first ones under the profiler are slow", default=1
    )
    active: int = option("how many to record", default=1)
    repeat: int = option(
        "how often, each time into a trace of its own; 0: as long as the window is open", default=1
    )

    def __attrs_post_init__(self) -> None:
        least = {"wait": 0, "warmup": 0, "active": 1, "repeat": 0}
        problems = [
            f"{key}: {getattr(self, key)} is not valid; expected at least {minimum}"
            for key, minimum in least.items()
            if getattr(self, key) < minimum
        ]
        if problems:
            raise ConfigError(problems)


@attrs.frozen
class TorchProfilerOptions:
    """What torch.profiler records."""

    activities: list[Activity] | None = option(
        "what is traced; null (default): all that this torch can", default=None
    )
    record_shapes: bool = option("the shapes of operators' inputs", default=False)
    profile_memory: bool = option(
        "allocations of memory; torch 2.13 records none while it profiles all threads",
        default=False,
    )
    with_stack: bool = option(
        "the Python line that called an operator, which is slow", default=False
    )
    with_flops: bool = option("an estimate of the floating-point operations", default=False)
    schedule: Schedule | None = option(
        "record parts of a window; null (default): all of it", default=None
    )

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

    every: str = option("Range whose executions to count, such as actor/run_training.")
    wait: int = option("Executions to skip.", default=0)
    warmup: int = option(
        "Executions to trace and discard: the first ones under the profiler are slow.", default=1
    )
    active: int = option("Executions to record.", default=1)
    repeat: int = option(
        "Times to repeat this, each into its own trace. 0: until the window closes.", default=1
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
        "Activities to trace. null: all that the installed torch supports.", default=None
    )
    record_shapes: bool = option("Record the shapes of operators' inputs.", default=False)
    profile_memory: bool = option(
        "Record memory allocations. torch 2.13 records none while it profiles all threads.",
        default=False,
    )
    with_stack: bool = option(
        "Record the Python line that called each operator. Slow.", default=False
    )
    with_flops: bool = option("Estimate the floating-point operations.", default=False)
    schedule: Schedule | None = option(
        "Parts of a window to record. null: all of it.", default=None
    )

    def __attrs_post_init__(self) -> None:
        if self.activities is not None and not self.activities:
            raise ConfigError(["activities: [] is not valid; expected some, or null for all"])

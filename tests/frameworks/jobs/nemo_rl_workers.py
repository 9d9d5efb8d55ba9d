"""The workers of `nemo_rl_job`, which an actor of NeMo-RL imports by name."""

from __future__ import annotations

import os
import sys
from typing import Any

import ray
from nemo_rl.utils.nsys import wrap_with_nvtx_name
from nemo_rl.utils.timer import Timer

if not hasattr(wrap_with_nvtx_name, "__wrapped__"):  # NVTX of PyTorch's CPU build raises

    def wrap_with_nvtx_name(name: str) -> Any:
        return lambda function: function


@ray.remote
class DTensorPolicyWorker:
    """A worker that is timed as NeMo-RL's own are."""

    def __init__(self) -> None:
        self.timer = Timer()
        self.total = 0

    @wrap_with_nvtx_name("dtensor_policy_worker/train")
    def train(self, step: int) -> list[Any]:
        with self.timer.time("forward_backward"):
            self.total += sum(range(step * 10_000)) * (int(os.environ["RANK"]) + 1)
        return [self.total, sorted(self.timer.get_timing_metrics())]

    def seen(self) -> dict[str, Any]:
        return {
            "variables": sorted(name for name in os.environ if name.startswith("GPUPROF")),
            "modules": [name for name in ("gpuprof",) if name in sys.modules],
        }

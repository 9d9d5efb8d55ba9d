"""A worker of verl, in a module that its processes import, as verl's own workers are."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.profiler import DistProfiler, DistProfilerExtension, simple_timer


class AgentLoopWorker:
    """An actor that the controller makes outside of worker groups, as verl's agent loop does."""

    def generate(self, step: int) -> list[str]:
        timing: dict[str, float] = {}
        with simple_timer("agent_loop", timing):
            sum(range(step))
        return sorted(timing)


class ActorRolloutRefWorker(Worker, DistProfilerExtension):
    """A worker that is timed as verl's own are."""

    def __init__(self, config: Any) -> None:
        Worker.__init__(self)
        profiler = omega_conf_to_dataclass(config.actor.profiler)
        named = config.actor.profiler.tool
        options = config.actor.profiler.tool_config.get(named) if named else None
        tool = omega_conf_to_dataclass(options) if options is not None else None
        own = DistProfiler(rank=self.rank, config=profiler, tool_config=tool)
        DistProfilerExtension.__init__(self, own)
        self.total = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    @DistProfiler.annotate(color="red", role="actor_update")
    def update_actor(self, step: int) -> dict[str, Any]:
        timing: dict[str, float] = {}
        with simple_timer("update_policy", timing):
            self.total += sum(range(step * 10_000)) * (self.rank + 1)
            time.sleep(0.1 * self.rank)  # a slow rank
        return {"total": self.total, "timing": sorted(timing)}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def generate(self, step: int) -> list[str]:
        timing: dict[str, float] = {}

        async def one(name: str) -> None:
            with simple_timer(name, timing):
                await asyncio.sleep(0.01)

        await asyncio.gather(one("tool_call"), one("generate_sequences"))
        return sorted(timing)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def seen(self) -> dict[str, Any]:
        return {
            "variables": sorted(name for name in os.environ if name.startswith("GPUPROF")),
            "modules": [name for name in ("gpuprof",) if name in sys.modules],
            "verl_profiles": self.profiler.check_enable(),
        }

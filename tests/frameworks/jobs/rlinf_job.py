"""Five steps of RLinf on CPUs: its `Cluster`, two ranks of its `WorkerGroup`, its timers.

Nothing here knows gpuprof. Writes results, and the names of what RLinf timed, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rlinf.scheduler import Cluster, NodePlacementStrategy, Worker
from rlinf.utils.distributed import ScopedTimer


class Actor(Worker):
    """A worker that is timed as RLinf's own are."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @Worker.timer("run_training")
    def run_training(self, step: int) -> int:
        with self.worker_timer("optimizer_step"):
            self.total += sum(range(step * 10_000)) * (self._rank + 1)
        return self.total

    @Worker.timer("generate")
    async def generate(self, step: int) -> list[str]:
        async def one(name: str) -> None:
            with self.worker_timer(name):
                await asyncio.sleep(0.01)

        await asyncio.gather(one("predict"), one("env_step"))
        return [str(step)]

    def timed(self) -> list[str]:
        return sorted(self.pop_execution_times())

    def seen(self) -> dict[str, Any]:
        return {
            "variables": sorted(name for name in os.environ if name.startswith("GPUPROF")),
            "modules": [name for name in ("gpuprof",) if name in sys.modules],
        }


class Runner:
    """A runner as RLinf's are: it counts in `global_step`, and times a step as ``step``."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.timer = ScopedTimer(reduction="sum", sync_cuda=False)
        self.global_step = 0
        self.results: list[Any] = []
        self.driver: list[list[str]] = []

    def run(self) -> None:
        for _ in range(5):
            with self.timer("step"):
                with self.timer("generate_rollouts"):
                    generated = self.actor.generate(self.global_step).wait()
                with self.timer("actor_training"):
                    trained = self.actor.run_training(self.global_step).wait()
                timed = self.actor.timed().wait()
                self.global_step += 1
            self.results.append([generated, trained, timed])
            self.driver.append(sorted(self.timer.consume_durations()))


def main() -> None:
    cfg = OmegaConf.from_dotlist(
        ["cluster.num_nodes=1", "cluster.component_placement={}", *sys.argv[2:]]
    )
    cluster = Cluster(cluster_cfg=cfg.cluster)
    actor = Actor.create_group().launch(cluster, NodePlacementStrategy([0, 0]), name="ActorGroup")
    runner = Runner(actor)
    seen = actor.seen().wait()
    runner.run()
    done = {"results": runner.results, "timed": runner.driver, "seen": seen}
    Path(sys.argv[1]).write_text(json.dumps(done))


if __name__ == "__main__":
    main()

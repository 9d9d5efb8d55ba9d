"""Five steps of NeMo-RL on CPUs: its virtual cluster, two ranks of its worker group, its timers.

Nothing here knows gpuprof. Writes results, and the names of what NeMo-RL timed, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES, RayVirtualCluster
from nemo_rl.distributed.worker_groups import RayWorkerBuilder, RayWorkerGroup
from nemo_rl.utils.nsys import maybe_gpu_profile_step
from nemo_rl.utils.timer import Timer

NAME = "nemo_rl_workers.DTensorPolicyWorker"


class Policy:
    """Has what NeMo-RL's profiler calls."""

    def start_gpu_profiling(self) -> None:
        raise AssertionError("NeMo-RL's own profiler has started")

    def stop_gpu_profiling(self) -> None:
        raise AssertionError("NeMo-RL's own profiler has stopped")


def main() -> None:
    ray.init(runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
    ACTOR_ENVIRONMENT_REGISTRY[NAME] = PY_EXECUTABLES.SYSTEM
    cluster = RayVirtualCluster(bundle_ct_per_node_list=[2], use_gpus=False, name="policy")
    group = RayWorkerGroup(cluster, RayWorkerBuilder(NAME), name_prefix="lm_policy")
    timer, policy = Timer(), Policy()

    def on_all(method: str, **arguments: Any) -> list[Any]:
        call = group.run_single_worker_single_data
        return ray.get([call(method, rank, **arguments) for rank in range(2)])

    results: list[Any] = []
    timed: list[list[str]] = []
    for step in range(1, 6):
        maybe_gpu_profile_step(policy, step)
        with timer.time("total_step_time"), timer.time("policy_training"):
            results.append(on_all("train", step=step))
        timed.append(sorted(timer.get_timing_metrics()))
        timer.reset()
    seen = on_all("seen")
    done = {"results": results, "timed": timed, "seen": seen}
    Path(sys.argv[1]).write_text(json.dumps(done))


if __name__ == "__main__":
    main()

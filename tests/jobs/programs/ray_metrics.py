"""Print gpuprof's metrics as Ray exports them, once they tell which rank is slow."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request

import gpuprof
import ray
from gpuprof.ray import Profiler


@ray.remote(num_cpus=0)
class Rank:
    """A worker of which rank 1 is slow."""

    def train(self, rank: int) -> None:
        """Take a step."""
        with gpuprof.timer("forward"):
            time.sleep(0.1 if rank == 1 else 0.05)


def exported() -> str:
    """What Prometheus would get now."""
    port = ray.nodes()[0]["MetricsExportPort"]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, TimeoutError):  # the exporter starts later
        return ""


ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    _temp_dir=os.environ["RAY_DIRECTORY"],
    _system_config={"metrics_report_interval_ms": 1000},
)
config = {"backend": "none", "worker_groups": ["Rank"], "instruments": ["ray"]}
with Profiler({**config, "ray_metrics": True}) as profiler:
    ranks = [
        profiler.start(
            lambda options: Rank.options(**options).remote(),  # type: ignore[attr-defined]
            group="Rank",
            rank=rank,
        )
        for rank in range(3)
    ]
    step, text = 0, ""
    while "gpuprof_bound_share{" not in text:
        with profiler.step(step, tokens=100):
            ray.get([actor.train.remote(rank) for rank, actor in enumerate(ranks)])
        step += 1
        if step % 20 == 0:
            text = exported()
print("\n".join(line for line in text.splitlines() if line.startswith("ray_gpuprof_")))
ray.shutdown()

"""Causes that are planted in real runs on Ray, and what the end of the run says about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpuprof._analysis import reading
from gpuprof._analysis.explain import Explanation
from gpuprof._report.explain import explain, helps
from support.cluster import address
from support.waiting import DEADLINE

_DRIVER = """
import json
import logging
import sys
import time

import gpuprof
import ray
from gpuprof.ray import Profiler

logging.basicConfig(level=logging.INFO)
planted = json.loads(sys.argv[3])


class Worker:
    def __init__(self, name):
        self.name = name

    @gpuprof.timer("generate")
    def generate(self):
        time.sleep(0.04 + planted.get(self.name, 0.0))

    @gpuprof.timer("learn")
    def learn(self):
        time.sleep(0.03)


ray.init(address=sys.argv[1], log_to_driver=False)
config = {"backend": "none", "worker_groups": "all", "instruments": ["ray"],
          "output_dir": sys.argv[2], "print_trees": "none"}
with Profiler(config) as profiler:
    workers = []
    for rank in range(2):
        options = profiler.worker_options(group="Rollout", rank=rank, num_cpus=0)
        workers.append(ray.remote(Worker).options(**options).remote(f"Rollout-{rank}"))
        profiler.add(workers[-1], group="Rollout", rank=rank)
    ray.get([worker.__ray_ready__.remote() for worker in workers])
    for step in range(30):
        with profiler.step(step):
            ray.get([worker.generate.remote() for worker in workers])
            with gpuprof.timer("compute_rewards"):
                time.sleep(0.002 + planted.get("Runner", 0.0))
            ray.get([worker.learn.remote() for worker in workers])
ray.shutdown()
"""


def explained(directory: Path, planted: dict[str, float]) -> tuple[Explanation, str]:
    """Run the job with causes that take so many seconds; the answer, and what the run printed."""
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, address(), str(directory), json.dumps(planted)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return explain(reading.read(next(directory.iterdir()))), done.stderr


@pytest.mark.exhaustive  # the simulated jobs of tests/core/analysis take the same path
@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({"Rollout-1": 0.3}, ("rank", "Rollout-1", "generate")),
        ({"Runner": 0.3}, ("driver", "Runner", "compute_rewards")),
    ],
)
def test_a_planted_cause_is_named_on_ray(
    planted: dict[str, float], expected: tuple[str, str, str], tmp_path: Path
) -> None:
    """By its worker and scope; the end of the run says what would help."""
    found, printed = explained(tmp_path, planted)
    first = found.findings[0]
    assert expected == (first.cause, first.worker, first.scope)
    assert f"would help:     {helps(found)}"[:60] in printed

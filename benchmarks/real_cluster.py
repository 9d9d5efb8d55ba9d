"""The driver's waits for a window on every worker of a real Ray cluster.

All processes share the machine's cores, so the seconds say little of a cluster of machines; how
they grow with the workers does.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from typing import Any

import gpuprof
import ray
from gpuprof.ray import Profiler
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tabulate import tabulate

NODES = 4
STEPS = 6
CAPTURED = 3


class Worker:
    """Hardly works."""

    @gpuprof.timer("work")
    def work(self) -> None:
        """A step."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8, 16])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="gpb", dir="/tmp", ignore_cleanup_errors=True
    ) as directory:
        first = {"num_cpus": 1, "include_dashboard": False, "temp_dir": f"{directory}/ray"}
        cluster = Cluster(initialize_head=True, head_node_args=first)
        for _ in range(NODES - 1):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            rows = [
                (count, *(f"{seconds:.3f}" for seconds in measure(count, directory)))
                for count in given.workers
            ]
        finally:
            ray.shutdown()
            cluster.shutdown()
    headers = ["workers", "start, s", "step, s", "step with a window, s", "finalize, s"]
    print(tabulate(rows, headers, disable_numparse=True, tablefmt="github"))


def measure(count: int, directory: str) -> tuple[float, float, float, float]:
    """Seconds of a step without a window, of a captured one, and of the run's end."""
    selected: dict[str, Any] = {"worker_groups": "all", "steps": [CAPTURED], "print_trees": "none"}
    own = {
        "output_dir": f"{directory}/output-{count}",
        "on_error": "raise",
        "nsight": {"preset": "light"},
    }
    profiler = Profiler({"backend": "nsight", **selected, **own})
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    started = time.perf_counter()
    workers = []
    for rank in range(count):
        place = NodeAffinitySchedulingStrategy(nodes[rank % len(nodes)], soft=False)
        worker = profiler.start(
            lambda options: ray.remote(Worker).options(**options).remote(),
            group="Worker",
            rank=rank,
            num_cpus=0,
            scheduling_strategy=place,
        )
        workers.append(worker)
    ray.get([worker.work.remote() for worker in workers])
    steps = [time.perf_counter()]
    for number in range(STEPS):
        with profiler.step(number):
            ray.get([worker.work.remote() for worker in workers])
        steps.append(time.perf_counter())
    durations = [after - before for before, after in itertools.pairwise(steps)]
    if not profiler.finalize().complete:
        raise SystemExit("a report is missing")
    ended = time.perf_counter() - steps[-1]
    for worker in workers:
        ray.kill(worker)
    return steps[0] - started, min(durations), durations[CAPTURED], ended


if __name__ == "__main__":
    main()

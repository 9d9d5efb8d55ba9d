"""A cluster of four nodes on this machine: windows on workers of all of them, and what comes home."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import several_nodes
from gpuprof.ray import Profiler
from launching import config, start
from report_reader import labels

pytestmark = pytest.mark.nsys


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Four nodes."""
    with several_nodes(4) as made:
        yield made


def places(per_node: int) -> list[dict[str, Any]]:
    """The options of workers, `per_node` on each node; those without a resource stay on the first."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    return [{"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)} for node in alive for _ in range(per_node)]


def test_windows_on_eight_workers_of_four_nodes(cluster: Any, tmp_path: Path) -> None:
    """Each node has a directory of its own, and each of the sixteen reports holds its own step."""
    import ray

    with Profiler(config(tmp_path)) as profiler:
        actors = [start(profiler, "ActorGroup", rank, **place) for rank, place in enumerate(places(2))]
        for step in range(6):
            with profiler.step(step):
                ray.get([actor.train.remote(step) for actor in actors])
    receipt = profiler.finalize()
    assert receipt.complete, receipt.table(all_rows=True)
    assert 16 == len(receipt.rows)
    assert {4} == set(Counter(row.node for row in receipt.rows).values())
    for row in receipt.rows:
        assert Path(row.file).parent.name == row.node
        assert 3 == labels(row.file)[f"forward-{row.window.removeprefix('step-')}"]


def test_the_doctor_visits_every_node(cluster: Any) -> None:
    """`gpuprof doctor --ray` has the same checks for each of the nodes, under names of their own."""
    command = [sys.executable, "-m", "gpuprof", "doctor", "backend=nsight", "--ray", "--address", cluster.address, "--json"]
    checks = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    nodes = {check["node"] for check in checks}
    assert 4 == len(nodes)
    arrived = [check["node"] for check in checks if check["name"] == "nsight ranges" and check["ok"]]
    assert sorted(nodes) == sorted(arrived)

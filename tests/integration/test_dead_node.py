"""A node of the cluster dies in the middle of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof.ray import Profiler
from support.cluster import places, several_nodes
from support.launching import config, start
from support.report_reader import labels
from support.waiting import wait_until

pytestmark = [pytest.mark.nsys, pytest.mark.fault]


def test_a_node_that_dies_loses_only_its_own(tmp_path: Path) -> None:
    """The receipt names the dead node; the other worker's report is home and complete."""
    import ray

    with several_nodes(2) as cluster:
        settings = config(
            tmp_path / "home", staging_dir=str(tmp_path / "away"), steps=[0], on_error="disable"
        )
        with Profiler(settings) as profiler:
            actors = [
                start(profiler, "ActorGroup", rank, **place) for rank, place in enumerate(places(1))
            ]
            with profiler.step(0):
                ray.get([actor.train.remote(0) for actor in actors])
            (other,) = cluster.worker_nodes
            here = ray.get_runtime_context().get_node_id()
            gone = next(
                rank
                for rank, place in enumerate(places(1))
                if place["scheduling_strategy"].node_id != here
            )
            cluster.remove_node(other, allow_graceful=False)
            wait_until(
                lambda: 1 == len([node for node in ray.nodes() if node["Alive"]]),
                "noticed: the node's death",
            )
        receipt = profiler.finalize()
    kept, lost = (receipt.rows[rank] for rank in (1 - gone, gone))
    assert "complete" == kept.state
    assert Path(kept.file).is_relative_to(tmp_path / "home")
    assert 3 == labels(kept.file)["forward-0"]
    assert "missing" == lost.state
    assert f"its node {lost.node} has died" == lost.reason
    assert [f"{lost.node}: the node died; files that were only on its disk are lost"] == list(
        receipt.faults
    )

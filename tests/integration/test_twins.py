"""Ray's two processes for a first task: it gives the task to either."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof.ray import Profiler
from support.cluster import several_nodes
from support.integration_workers import prepare
from support.launching import config
from support.report_reader import labels


@pytest.mark.nsys
def test_whichever_process_gets_the_calls_has_the_report(tmp_path: Path) -> None:
    """Both are wrapped, and the idle one is no worker that is missing."""
    import ray

    with several_nodes(1):  # without idle processes
        with Profiler(config(tmp_path, worker_groups=["Prepare"], steps=[1])) as profiler:
            task = ray.remote(prepare).options(**profiler.worker_options(group="Prepare", rank=0))
            assert [0, 1, 2] == [ray.get(task.remote(step)) for step in range(3)]
        receipt = profiler.finalize()
        assert 2 == len(list(tmp_path.glob("*/*/.gpuprof/Prepare-0.start-*.tool")))
        assert [("step-1", "complete")] == [(row.window, row.state) for row in receipt.rows]
        assert {"gate": 1, "prepare-1": 1} == labels(str(receipt.rows[0].file))

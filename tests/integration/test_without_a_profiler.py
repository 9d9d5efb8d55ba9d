"""A job on Ray with `backend: none`: what went wrong is named as it is with a profiler."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts import runs
from gpuprof._artifacts.ledger import read
from gpuprof.ray import Profiler, _profiler
from support.integration_workers import Worker
from support.waiting import wait_until


def test_a_killed_worker_and_one_never_added(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are in the receipt; the ledger of the second has the last step, and `runs` the first."""
    monkeypatch.setattr(_profiler, "LAST_SECONDS", 6.0)  # this machine may be very busy
    settings = {"backend": "none", "worker_groups": ["A"], "output_dir": str(tmp_path)}
    with Profiler(settings) as profiler:
        actors = [
            ray.remote(Worker)
            .options(**profiler.worker_options(group="A", rank=rank, num_cpus=0))
            .remote()
            for rank in range(3)
        ]
        for rank in (0, 1):
            profiler.add(actors[rank], group="A", rank=rank)
        for step in range(4):
            if step == 2:
                wait_until(lambda: list(tmp_path.glob("*/*/A-1.*.json")), "written: its file")
                os.kill(ray.get(actors[1].identity.remote())["pid"], signal.SIGKILL)
                with pytest.raises(ray.exceptions.RayActorError):
                    ray.get(actors.pop(1).identity.remote())
            with profiler.step(step):
                ray.get([actor.train.remote(step) for actor in actors])
    faults = profiler.finalize().faults
    assert ["A-1 ended early", "A-2: the actor was not registered"] == sorted(
        fault.partition(" on node")[0].partition(";")[0] for fault in faults
    )
    (found,) = runs.runs(str(tmp_path))
    assert "no report expected; A-1 ended early" == found.state
    (driver,) = tmp_path.glob("*/*/Runner.ledger")
    (last,) = tmp_path.glob("*/*/A-2.*.ledger")
    assert read(driver).steps()[-1].start < read(last).spans["end"].max()  # one clock for both

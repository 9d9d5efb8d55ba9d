"""A job on Ray with `backend: none`: what went wrong is named as it is with a profiler."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts import runs
from gpuprof._artifacts.ledger import read
from gpuprof._shim.processes import process_start
from gpuprof.ray import Profiler, _profiler
from support.integration_workers import Owner, Worker
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


def test_a_worker_that_the_job_ends_is_no_fault(ray: Any, tmp_path: Path) -> None:
    """Not by `ray.kill`, by its own exit, nor with its owner; with an owner that crashes it is."""
    settings = {"backend": "none", "worker_groups": ["A"], "output_dir": str(tmp_path)}
    with Profiler(settings) as profiler:
        options = [profiler.worker_options(group="A", rank=rank, num_cpus=0) for rank in range(5)]
        owners = [ray.remote(Owner).options(num_cpus=0).remote() for _ in range(2)]
        actors = [
            *(ray.remote(Worker).options(**options[rank]).remote() for rank in range(3)),
            *ray.get([owners[0].start.remote(options[3]), owners[1].start.remote(options[4])]),
        ]
        for rank, actor in enumerate(actors):
            profiler.add(actor, group="A", rank=rank)
        for step in range(2):
            with profiler.step(step):
                ray.get([actor.train.remote(step) for actor in actors])
        wait_until(lambda: len([*tmp_path.glob("*/*/A-*.json")]) == 5, "written: their files")
        pids = [ray.get(actor.identity.remote())["pid"] for actor in actors]
        ray.kill(actors[0])
        actors[1].leave.remote()
        actors[2].die.remote()
        ray.kill(owners[0])
        owners[1].die.remote()
        wait_until(lambda: not any(map(process_start, pids)), "ended: the five workers")
    about = runs.about(next(tmp_path.iterdir()))
    assert about is not None
    assert ["A-2", "A-4"] == sorted(entry["worker"] for entry in about.ended_early or ())

"""Which steps are left out of the trees: on Ray and under `gpuprof run`, on every worker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._session.orders import Order, give
from gpuprof._session.orders import make as make_orders
from gpuprof.ray import Profiler
from gpuprof_timing import Timing
from support.launched import GPUPROF, environment
from support.launching import config, start
from support.waiting import DEADLINE

STEPS = """
import gpuprof
for step in range(8):
    with gpuprof.step(step), gpuprof.timer(f"step-{step}"):
        pass
"""
ORDERED = """
import itertools, gpuprof
from gpuprof._session import public
gpuprof.timing()
for step in itertools.count():
    with gpuprof.step(step):
        pass
    if public.session().left_out.captured.all:  # the control thread has read the order
        break
for step in range(1_000_000_000, 1_000_000_004):
    with gpuprof.step(step), gpuprof.timer(f"step-{step - 1_000_000_000}"):
        pass
"""


def steps_of(tree: dict[str, Any] | None, prefix: str = "step") -> set[int]:
    """The numbers of the steps in a tree."""
    places = Timing.from_dict(tree) if tree is not None else ()
    return {int(key.partition("-")[2]) for key in places if key.startswith(f"{prefix}-")}


def files(directory: Path) -> dict[str, Any]:
    """The files of the workers and of the driver, by name."""
    found = [*directory.rglob("*.start-1.json"), *directory.rglob("Runner.json")]
    sessions = [json.loads(file.read_text()) for file in found]
    return {session["name"]: session for session in sessions}


def run_rank(directory: Path, rank: int, program: str, *settings: str) -> Any:
    """Run one rank of two by itself, and return its file."""
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    arguments = [word for setting in settings for word in ("--set", setting)]
    subprocess.run(
        [*GPUPROF, *arguments, "--", sys.executable, "-c", program],
        cwd=directory,
        env=environment(GPUPROF_RUN="run", TORCHELASTIC_RUN_ID="run", **variables),
        timeout=DEADLINE,
        check=True,
    )
    return files(directory)[f"Worker-{rank}"]


def test_a_rank_that_is_not_selected_leaves_out_what_others_capture(tmp_path: Path) -> None:
    """It waits for them in these steps and in the next ones. It runs without the profiler."""
    file = run_rank(tmp_path, 1, STEPS, "backend=nsight", "ranks=[0]", "steps=[2,5]")
    assert {0, 1, 4, 7} == steps_of(file["timing"])
    assert {2, 3, 5, 6} == steps_of(file["while_profiling"])


def test_a_backend_that_captures_nothing_leaves_nothing_out(tmp_path: Path) -> None:
    """With `none` there is a tree, and nothing slows it."""
    file = run_rank(tmp_path, 1, STEPS, "backend=none", "ranks=[0]", "steps=[2,5]")
    assert (set(range(8)), None) == (steps_of(file["timing"]), file["while_profiling"])


def test_a_rank_that_is_not_selected_reads_orders(tmp_path: Path) -> None:
    """``gpuprof capture`` asks rank 0 for a step of a running job, and rank 1 leaves it out."""
    run = tmp_path / "gpuprof-output" / "run"
    run.mkdir(parents=True)
    named = 1_000_000_001
    give(make_orders(str(run)), Order(0, ((named, named + 1),), ("all",), ((0, 1),)))
    file = run_rank(tmp_path, 1, ORDERED, "backend=nsight", "ranks=[0]", "steps=[]", "armed=true")
    assert {0, 3} == steps_of(file["timing"])
    assert {1, 2} == steps_of(file["while_profiling"])


@pytest.mark.nsys
def test_both_ranks_of_a_job_leave_out_the_same_steps(tmp_path: Path) -> None:
    """The captured rank as the other one; both keep what they leave out."""
    settings = ("backend=nsight", "nsight.preset=light", "ranks=[0]", "steps=[2,5]")
    for rank in range(2):
        run_rank(tmp_path, rank, STEPS, *settings)
    for file in files(tmp_path).values():
        assert {0, 1, 4, 7} == steps_of(file["timing"])
        assert {2, 3, 5, 6} == steps_of(file["while_profiling"])


@pytest.mark.nsys
def test_ray_workers_and_the_driver_leave_out_the_same_steps(ray: Any, tmp_path: Path) -> None:
    """Also those that are not profiled, whether added before the profiled ones or after."""
    with Profiler(config(tmp_path)) as profiler:
        actors = [
            start(profiler, group, rank)
            for group, rank in (("EnvGroup", 0), ("ActorGroup", 0), ("EnvGroup", 1))
        ]
        for step in range(9):
            with profiler.step(step), profiler.timing.add_time(f"forward-{step}"):
                ray.get([actor.train.remote(step) for actor in actors])
    found = files(tmp_path)
    assert {"ActorGroup-0", "EnvGroup-0", "EnvGroup-1", "Runner"} == set(found)
    for file in found.values():
        assert {0, 1, 4, 7, 8} == steps_of(file["timing"], "forward")
        assert {2, 3, 5, 6} == steps_of(file["while_profiling"], "forward")
        assert 4 == file["steps_left_out"]

"""Capture windows on a real Ray cluster under a real nsys, and what is in the reports."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from gpuprof._analysis import reading
from gpuprof.ray import Profiler
from support.integration_workers import AsyncWorker
from support.launching import config, start
from support.report_reader import labels
from support.waiting import wait_until

pytestmark = pytest.mark.nsys


def test_each_report_holds_its_step_and_no_other(ray: Any, tmp_path: Path) -> None:
    """Two actors and two windows make four reports, each with only its step's labels."""
    with Profiler(config(tmp_path)) as profiler:
        actors = [start(profiler, "ActorGroup", rank) for rank in range(2)]
        for step in range(7):
            with profiler.step(step):
                ray.get([actor.train.remote(step) for actor in actors])
    receipt = profiler.finalize()
    assert receipt.complete
    assert [(row.worker, row.window) for row in receipt.rows] == [
        ("ActorGroup-0", "step-2"),
        ("ActorGroup-0", "step-5"),
        ("ActorGroup-1", "step-2"),
        ("ActorGroup-1", "step-5"),
    ]
    for row in receipt.rows:
        step = row.window.removeprefix("step-")
        expected = {
            "gate": 1,
            "actor/run_training": 1,
            f"forward-{step}": 3,
            f"annotated-{step}": 1,
        }
        assert expected == labels(row.file)
    assert "" == receipt.overhead  # two captured steps are too few to tell


def test_adjacent_steps_are_joined_when_continuous(ray: Any, tmp_path: Path) -> None:
    """`continuous: true` records steps 2 and 3 in one report."""
    with Profiler(config(tmp_path, steps=["2:4"], continuous=True)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(5):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    (row,) = profiler.finalize().rows
    assert "steps-2-3" == row.window
    assert "complete" == row.state
    found = labels(row.file)
    assert {"forward-2": 3, "forward-3": 3} == {
        label: count for label, count in found.items() if label.startswith("forward")
    }


def test_steps_that_do_not_go_up_by_one(ray: Any, tmp_path: Path) -> None:
    """Step 4 of a job that counts by four is in the window 4 to 7; step 8 closes it."""
    with Profiler(config(tmp_path, steps=["4:8"], continuous=True)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in (0, 4, 8, 12):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    (row,) = profiler.finalize().rows
    assert "steps-4-7" == row.window
    assert "complete" == row.state
    assert {"forward-4": 3} == {
        label: count for label, count in labels(row.file).items() if label.startswith("forward")
    }


def test_the_whole_life_without_steps(ray: Any, tmp_path: Path) -> None:
    """`steps: null` records everything; the actor is ended so that its report is written."""
    with Profiler(config(tmp_path, steps=None)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        ray.get([actor.train.remote(step) for step in range(2)])
    (row,) = profiler.finalize().rows
    assert "lifetime" == row.window
    assert "complete" == row.state
    assert {"forward-0": 3, "forward-1": 3}.items() <= labels(row.file).items()


def test_a_window_that_was_never_reached(ray: Any, tmp_path: Path) -> None:
    """Training that ends early keeps step 2, and the receipt explains the missing step 5."""
    with Profiler(config(tmp_path)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(4):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    captured, missing = profiler.finalize().rows
    assert "step-2" == captured.window
    assert "complete" == captured.state
    assert 3 == labels(captured.file)["forward-2"]
    assert "step-5" == missing.window
    assert "missing" == missing.state
    assert (
        "the window was never opened; none of its steps ran; the run's were 0 to 3"
        == missing.reason
    )


def test_a_worker_that_came_after_a_window(ray: Any, tmp_path: Path) -> None:
    """The receipt says so, and it has the window that was still to come."""
    with Profiler(config(tmp_path)) as profiler:
        for step in (0, 2, 4, 5, 1):
            if step == 5:
                start(profiler, "ActorGroup", 0)
            with profiler.step(step):
                pass
    early, captured = profiler.finalize().rows
    assert "the window was never opened; the worker was added when step 4 had begun" == early.reason
    assert "complete" == captured.state


def test_steps_inside_steps(ray: Any, tmp_path: Path) -> None:
    """A nested step ends with the outer one and is not compared with plain steps."""
    with Profiler(config(tmp_path, steps=[2])) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(0), profiler.step(1):
            pass
        with profiler.step(2):
            with profiler.step(2):
                ray.get(actor.train.remote(1))
            ray.get(actor.train.remote(2))
        with profiler.step("3"), profiler.step(4):  # type: ignore[arg-type]
            pass
        with profiler.step(5):
            pass
    (row,) = profiler.finalize().rows
    assert 3 == labels(row.file)["forward-2"]
    times = profiler._step_times
    # of 1 and 5 the first warms up; 0 and 2 have others in them, and 4 comes after a captured one
    assert 0 == times.count_inside
    assert 1 == times.count_outside


def test_a_job_that_says_no_step(ray: Any, tmp_path: Path) -> None:
    """The commonest omission has a reason of its own."""
    with Profiler(config(tmp_path, steps=[2])) as profiler:
        ray.get(start(profiler, "ActorGroup", 0).train.remote(0))
    (missing,) = profiler.finalize().rows
    assert missing.reason.startswith("the window was never opened; no step was begun; mark it")


def test_an_exception_in_the_step_closes_the_window(ray: Any, tmp_path: Path) -> None:
    """The driver's exception passes, and the report of the open window is complete."""
    with pytest.raises(ZeroDivisionError), Profiler(config(tmp_path, steps=[0])) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(0):
            ray.get(actor.train.remote(0))
            raise ZeroDivisionError
    assert ["complete"] == [row.state for row in profiler.finalize().rows]


def wait_for_rounds(flag: Path) -> None:
    """Wait until the busy actor has begun a round and ended it."""
    shown = flag.with_name(f"{flag.name}.round")
    for _ in range(2):
        shown.unlink(missing_ok=True)
        wait_until(shown.exists, "ended: the actor's round")


def test_a_busy_actor_is_captured(ray: Any, tmp_path: Path) -> None:
    """A window opens on an actor that sits inside one method for the whole step."""
    flag = tmp_path / "flag"
    with Profiler(config(tmp_path / "out", steps=[0])) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        ray.get(actor.train.remote(99))
        busy = actor.work_until.remote(str(flag))
        wait_for_rounds(flag)
        with profiler.step(0):
            wait_for_rounds(flag)
        flag.touch()
        assert ray.get(busy) > 0
    (row,) = profiler.finalize().rows
    assert labels(row.file)["busy"] > 0


def test_a_threaded_actor_is_captured(ray: Any, tmp_path: Path) -> None:
    """Calls that run in several threads at once are all in the report."""
    with Profiler(config(tmp_path, steps=[0])) as profiler:
        actor = start(profiler, "ActorGroup", 0, max_concurrency=4)
        with profiler.step(0):
            ray.get([actor.train.remote(0) for _ in range(8)])
    (row,) = profiler.finalize().rows
    assert {"actor/run_training": 8, "forward-0": 24}.items() <= labels(row.file).items()


def test_an_async_actor_is_captured(ray: Any, tmp_path: Path) -> None:
    """Interleaved coroutines are all in the report; the window opens outside their loop."""
    with Profiler(config(tmp_path, steps=[0])) as profiler:
        actor = start(profiler, "ActorGroup", 0, AsyncWorker)
        with profiler.step(0):
            ray.get([actor.generate.remote(0) for _ in range(8)])
    (row,) = profiler.finalize().rows
    assert {"rollout/generate": 8, "await-0": 24}.items() <= labels(row.file).items()


def test_unselected_groups_and_ranks_run_unwrapped(ray: Any, tmp_path: Path) -> None:
    """Only the selected rank is behind nsys; the others still leave trees."""
    with Profiler(config(tmp_path, ranks=[1], steps=[0])) as profiler:
        actors = {
            (group, rank): start(profiler, group, rank)
            for group in ("ActorGroup", "EnvGroup")
            for rank in (0, 1)
        }
        with profiler.step(0):
            ray.get([actor.train.remote(0) for actor in actors.values()])
        wrapped = {
            key: ray.get(actor.identity.remote())["wrapped"] for key, actor in actors.items()
        }
    assert {
        ("ActorGroup", 0): False,
        ("ActorGroup", 1): True,
        ("EnvGroup", 0): False,
        ("EnvGroup", 1): False,
    } == wrapped
    trees = sorted(file.name for file in tmp_path.glob("*/*/*.start-1.json"))
    assert [
        f"{group}-{rank}.start-1.json" for group in ("ActorGroup", "EnvGroup") for rank in (0, 1)
    ] == trees


def test_workers_on_a_node_that_is_not_selected_are_left_alone(ray: Any, tmp_path: Path) -> None:
    """They run unwrapped, live on after the run, and nothing is missing."""
    with Profiler(config(tmp_path, nodes=["elsewhere-*"])) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(3):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    receipt = profiler.finalize()
    assert () == receipt.rows
    assert () == receipt.faults
    assert not ray.get(actor.identity.remote())["wrapped"]


@pytest.mark.parametrize("gate", ["session", pytest.param("nvtx", marks=pytest.mark.exhaustive)])
def test_a_spent_disk_budget_opens_no_further_window(ray: Any, tmp_path: Path, gate: str) -> None:
    """Beyond `max_bytes` no window opens, and the receipt says why.

    Under the gate `nvtx` nsys keeps what it has captured in its temporary directory, and 180 kB
    from the start in newer releases.
    """
    with Profiler(config(tmp_path, max_bytes=300_000, nsight={"gate": gate})) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(6):
            with profiler.step(step):
                ray.get(actor.fill.remote(step))
    kept, refused = profiler.finalize().rows
    assert 1 == profiler._step_times.count_inside
    assert "step-2" == kept.window
    assert "complete" == kept.state
    assert "step-5" == refused.window
    assert "missing" == refused.state
    assert re.fullmatch(r"max_bytes: \d+ of 300000 bytes are used on this node", refused.reason)
    # the trees leave out step 2 and the one after it, and the ledgers have no other captured step
    for file in [*tmp_path.glob("*/*/*.start-1.json"), *tmp_path.glob("*/*/Runner.json")]:
        assert 2 == json.loads(file.read_text())["steps_left_out"]
    steps = reading.read(str(profiler.directory)).steps
    assert [2] == [step.number for step in steps if step.captured]


def test_a_worker_that_does_not_answer_is_named_and_the_step_goes_on(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening waits for a stopped worker until the deadline; the other one is recorded."""
    with Profiler(config(tmp_path, steps=[0, 1], on_error="disable")) as profiler:
        stopped, living = (start(profiler, "ActorGroup", rank) for rank in range(2))
        pid = ray.get(stopped.identity.remote())["pid"]
        with profiler.step(0):
            ray.get([stopped.train.remote(0), living.train.remote(0)])
        # The living one opens its window within it: that takes a tenth of a second.
        monkeypatch.setattr("gpuprof.ray._windows.OPEN_DEADLINE", 10.0)
        os.kill(pid, signal.SIGSTOP)
        stat = Path(f"/proc/{pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "stopped")
        try:
            began = time.monotonic()
            with profiler.step(1):
                waited = time.monotonic() - began
                ray.get(living.train.remote(1))
                os.kill(pid, signal.SIGCONT)
                ray.get(stopped.train.remote(1))
        finally:
            os.kill(pid, signal.SIGCONT)
    assert waited >= 10
    receipt = profiler.finalize()
    assert "ActorGroup-0: did not open its window step-1 within 10 s" in receipt.faults
    assert [] == [fault for fault in receipt.faults if fault.startswith("ActorGroup-1")]
    assert [
        ("step-0", "complete"),
        ("step-1", "missing"),
        ("step-0", "complete"),
        ("step-1", "complete"),
    ] == [(row.window, row.state) for row in receipt.rows]
    assert {"forward-1": 3}.items() <= labels(str(receipt.rows[3].file)).items()

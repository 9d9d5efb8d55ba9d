"""Ray's kinds of workers: actors with options, tasks, detached actors, controllers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpuprof.ray import Profiler
from gpuprof_timing import Timing
from support.cluster import end_node, one_node
from support.integration_workers import Controller, hold, prepare, prepare_with_an_actor
from support.launching import config
from support.report_reader import labels
from support.waiting import wait_until

pytestmark = pytest.mark.nsys
GROUP = "Preprocess"


@pytest.fixture(scope="module", name="ray")
def ray_anew() -> Any:
    """Ray, started anew: which of its processes gets a task depends on those that are idle."""
    end_node()
    return one_node()


def settings(directory: Path, **more: Any) -> Any:
    """A configuration that selects the tasks."""
    return config(directory, worker_groups=[GROUP], **more)


def task(ray: Any, profiler: Profiler, rank: int, function: Any = prepare) -> Any:
    """A remote function with the options of a rank."""
    return ray.remote(function).options(
        **profiler.worker_options(group=GROUP, rank=rank, num_cpus=0)
    )


EXAMPLES = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "ray.md").read_text(), re.DOTALL
)[:2]  # the third needs Ray Train: tests/frameworks runs it


@pytest.mark.parametrize("example", EXAMPLES, ids=["actors", "tasks"])
def test_an_example_of_the_page_does_what_it_says(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    """Every worker has its report; those with complete reports live on."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(example, names)
    rows = names["profiler"].finalize().rows
    label = "learn" if "learners" in names else "prepare"
    assert len(names.get("learners", names.get("ranks"))) == len(rows)
    assert [("step-1", 1)] * len(rows) == [
        (row.window, labels(str(row.file))[label]) for row in rows
    ]
    if "learners" in names:
        assert [9] * len(rows) == ray.get(
            [learner.learn.remote(9) for learner in names["learners"]]
        )
        ray.kill(names["learners"][1])
        ray.util.remove_placement_group(names["bundles"])


def test_a_controller_that_is_an_actor(ray: Any, tmp_path: Path) -> None:
    """An actor controls the run like the driver: same windows, trees and receipt."""
    controller = ray.remote(Controller).options(num_cpus=0).remote()
    states, tree = ray.get(controller.train.remote(str(tmp_path)))
    assert [
        ("ActorGroup-0", "step-2", "complete"),
        ("ActorGroup-0", "step-5", "complete"),
    ] == states
    assert "main_loop" in tree


def test_a_task_says_its_steps_itself(ray: Any, tmp_path: Path) -> None:
    """Each rank is one process with its reports; a rank that never came is reported."""
    with Profiler(settings(tmp_path, steps=[2, 5, 9])) as profiler:
        ranks = [task(ray, profiler, rank) for rank in range(2)]
        for step in range(7):
            ray.get([rank.remote(step) for rank in ranks])
    receipt = profiler.finalize()
    rows = receipt.rows
    captured, missing = (
        [row for row in rows if row.window != "step-9"],
        [row for row in rows if row.window == "step-9"],
    )
    assert [
        (f"{GROUP}-{rank}", f"step-{step}", "complete") for rank in range(2) for step in (2, 5)
    ] == [(row.worker, row.window, row.state) for row in captured]
    assert ["the window was never opened; its last step was 6"] * 2 == [
        row.reason for row in missing
    ]
    assert re.match("a captured step took .* to open and close the window; ", receipt.overhead)
    sessions = [
        json.loads(file.read_text())
        for file in Path(str(receipt.directory)).glob("*/*.start-*.json")
    ]
    places = {"prepare-0", "prepare-1", "prepare-4"}
    assert [(places, 4)] * 2 == [
        (set(Timing.from_dict(session["timing"])), session["steps_left_out"])
        for session in sessions
    ]
    for row in captured:
        assert {"gate": 1, f"prepare-{row.window.removeprefix('step-')}": 1} == labels(
            str(row.file)
        )


def test_a_task_is_not_missed(ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Steps of the driver cause no complaint about tasks or child actors."""
    with Profiler(settings(tmp_path, steps=[1])) as profiler:
        remote = task(ray, profiler, 0, prepare_with_an_actor)
        for step in range(3):
            with profiler.step(step):
                ray.get(remote.remote(step))
    assert [("complete", "")] == [(row.state, row.reason) for row in profiler.finalize().rows]
    assert [] == [message for message in caplog.messages if "never made known" in message]


def test_the_tree_of_a_task_is_printed(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes from the session's file, for all calls."""
    with (
        caplog.at_level("INFO", "gpuprof"),
        Profiler(settings(tmp_path, print_trees="all", steps=[1])) as profiler,
    ):
        remote = task(ray, profiler, 0)
        for step in range(3):
            ray.get(remote.remote(step))
    (tree,) = (message for message in caplog.messages if message.startswith(f"{GROUP}-0 profile"))
    assert ["prepare-0", "prepare-1", "prepare-2"] == re.findall(r"prepare-\d", tree)


def test_the_whole_life_of_a_task(ray: Any, tmp_path: Path) -> None:
    """Without steps the whole life is recorded, for ended and for reused processes."""
    with Profiler(settings(tmp_path, steps=None)) as profiler:
        for rank, given in enumerate([{"max_calls": 1}, {}]):
            remote = ray.remote(**given)(prepare) if given else ray.remote(prepare)
            ray.get(
                remote.options(
                    **profiler.worker_options(group=GROUP, rank=rank, num_cpus=0)
                ).remote(4)
            )
    rows = profiler.finalize().rows
    assert [(f"{GROUP}-{rank}", "complete") for rank in range(2)] == [
        (row.worker, row.state) for row in rows
    ]
    assert [1, 1] == [labels(str(row.file))["prepare-4"] for row in rows]


def test_a_task_that_runs_goes_on(ray: Any, tmp_path: Path) -> None:
    """The end of profiling leaves a call running; its report is reported as unfinished."""
    flag = tmp_path / "flag"
    profiler = Profiler(settings(tmp_path / "output", steps=None))
    running = task(ray, profiler, 0, hold).remote(str(flag))
    wait_until(Path(f"{flag}.begun").exists, "begun: the task")
    (row,) = profiler.finalize(timeout=2).rows
    assert "lifetime" == row.window
    assert "missing" == row.state
    scratch = row.reason.removeprefix("the worker is still running; the unfinished report is in ")
    assert Path(scratch).is_dir()
    flag.touch()
    assert "held" == ray.get(running)

"""The worker's process: children, restarts, and sudden ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof._artifacts.records import read_node
from gpuprof.errors import ConfigError, ToolError
from gpuprof.ray import Profiler
from gpuprof.ray._channel import ENDED
from support.cluster import address, make
from support.integration_workers import AsyncWorker, Controller, Worker
from support.launching import config, start
from support.report_reader import labels
from support.waiting import DEADLINE, wait_until

pytestmark = pytest.mark.nsys


def test_children_of_a_worker_run_unwrapped(ray: Any, tmp_path: Path) -> None:
    """Children inherit the worker's environment unprofiled, each with a name of its own."""
    with Profiler(config(tmp_path, steps=[0])) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(0):
            ray.get(actor.train.remote(0))
        worker = ray.get(actor.identity.remote())
        children = ray.get(actor.start_children.remote())
    assert worker["wrapped"] is True
    assert "ActorGroup-0" == worker["name"]
    assert {kind: f"ActorGroup-0.child-{child['pid']}" for kind, child in children.items()} == {
        kind: child["name"] for kind, child in children.items()
    }
    # A subprocess keeps nsys's variables, whose process tree it belongs to; what Ray starts must
    # not have them.
    assert [False, False] == [children[kind]["wrapped"] for kind in ("actor", "task")]
    (tree,) = tmp_path.glob(f"*/*/ActorGroup-0.child-{children['subprocess']['pid']}.json")
    assert ["in_subprocess"] == [
        node["key"] for node in json.loads(tree.read_text())["timing"]["children"]
    ]
    assert ["complete"] == [row.state for row in profiler.finalize().rows]


@pytest.mark.fault
def test_a_restarted_actor_overwrites_nothing(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restarted actor has a report from each start, and one tree.

    Its one tree is of both.
    """
    with (
        caplog.at_level("INFO", "gpuprof"),
        Profiler(config(tmp_path, print_trees="all")) as profiler,
    ):
        actor = start(profiler, "ActorGroup", 0, max_restarts=1, max_task_retries=1)
        for step in range(7):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
            if step == 3:
                with pytest.raises(ray.exceptions.RayActorError):
                    ray.get(actor.die.options(max_task_retries=0).remote())
    first, second = profiler.finalize().rows
    assert [("step-2", "complete"), ("step-5", "complete")] == [
        (row.window, row.state) for row in (first, second)
    ]
    assert 3 == labels(first.file)["forward-2"]
    assert 3 == labels(second.file)["forward-5"]
    assert ["ActorGroup-0.start-1.json", "ActorGroup-0.start-2.json"] == sorted(
        file.name for file in tmp_path.glob("*/*/ActorGroup-0.start-*.json")
    )
    # on a busy machine, it may have waited for a processor, and is said to be slow
    named = re.compile(r"ActorGroup-0 (\(slow\) )?profile")
    (tree,) = (message for message in caplog.messages if named.match(message))
    assert {"forward-2", "forward-5"} <= set(re.findall(r"forward-\d", tree))


@pytest.mark.fault
def test_an_actor_that_dies_in_its_window(ray: Any, tmp_path: Path) -> None:
    """A dead worker delays nobody; the receipt says what became of its window."""
    with Profiler(config(tmp_path, on_error="disable")) as profiler:
        dying, living = (start(profiler, "ActorGroup", rank) for rank in range(2))
        for step in range(6):
            with profiler.step(step):
                ray.get(living.train.remote(step))
                if step == 2:
                    dying.die.remote()
                    with pytest.raises(ray.exceptions.RayActorError):
                        ray.get(dying.train.remote(step))
    rows = {(row.worker, row.window): row for row in profiler.finalize().rows}
    assert ["complete", "complete"] == [
        rows["ActorGroup-1", window].state for window in ("step-2", "step-5")
    ]
    assert "missing" == rows["ActorGroup-0", "step-5"].state
    faults = profiler.finalize().faults
    assert f"ActorGroup-0: {ENDED}" in faults
    assert "ActorGroup-0: the worker cannot be reached: ActorDiedError" in faults
    # as a deadline is told that was waited for
    assert [] == [fault for fault in faults if " within " in fault]


def test_a_controller_that_is_profiled_itself(ray: Any, tmp_path: Path) -> None:
    """A wrapped driver's workers do not get its shim as their interpreter."""
    with Profiler(config(tmp_path / "outer", worker_groups=["Controller"], steps=None)) as profiler:
        controller = start(profiler, "Controller", 0, Controller)
        states, _ = ray.get(controller.train.remote(str(tmp_path / "inner")), timeout=DEADLINE)
    assert [
        ("ActorGroup-0", "step-2", "complete"),
        ("ActorGroup-0", "step-5", "complete"),
    ] == states
    assert ["complete"] == [row.state for row in profiler.finalize().rows]


def test_without_a_configuration_everything_runs_unwrapped(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No configuration: the options come back as they were, nothing is made, the job runs."""
    monkeypatch.chdir(tmp_path)
    with Profiler() as profiler:
        assert {"num_cpus": 0} == profiler.worker_options(group="ActorGroup", rank=0, num_cpus=0)
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(2):
            assert 2 == ray.get(actor.train.remote(2))
        inside = ray.get(actor.identity.remote())
    assert inside["wrapped"] is False
    assert inside["name"] is None
    assert [] == list(tmp_path.iterdir())


_JOB_WITHOUT_FINALIZE = """
import sys
import ray
from gpuprof._artifacts.records import read_node
from gpuprof.ray import Profiler
from support.integration_workers import AsyncWorker
from support.launching import config, start

temporary, output = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=temporary,
         _node_ip_address="127.0.0.1")
profiler = Profiler(config(output))
actor = start(profiler, "ActorGroup", 0)
for step in range(4):
    with profiler.step(step):
        ray.get(actor.train.remote(step))
print(ray.get(actor.work_until_written.remote(output + "/" + profiler.run)))
ray.shutdown()
"""


def test_an_actor_in_the_place_of_one_that_has_died(ray: Any, tmp_path: Path) -> None:
    """A replacement actor gets the coming windows; while the first lives it is refused."""
    with Profiler(config(tmp_path)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(6):
            if step == 4:
                with pytest.raises(
                    ConfigError,
                    match=("ActorGroup-0: an actor of this group and rank is still running"),
                ):
                    profiler.worker_options(group="ActorGroup", rank=0)
                ray.kill(actor)
                actor = start(profiler, "ActorGroup", 0)
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    receipt = profiler.finalize()
    assert [("step-2", "complete"), ("step-5", "complete")] == [
        (row.window, row.state) for row in receipt.rows
    ]
    assert [3, 3] == [
        labels(row.file)[f"forward-{step}"] for row, step in zip(receipt.rows, (2, 5), strict=True)
    ]
    assert () == receipt.faults  # the job has killed the first one itself


class Unborn:
    """Ends while it is made."""

    def __init__(self) -> None:
        raise RuntimeError


def test_an_actor_that_fails_while_it_is_made(ray: Any, tmp_path: Path) -> None:
    """An unreachable worker is logged once, and the receipt has each of its windows."""
    with Profiler(config(tmp_path, on_error="disable")) as profiler:
        start(profiler, "ActorGroup", 0, Unborn)
        for step in range(6):
            with profiler.step(step):
                pass
    receipt = profiler.finalize()
    assert all(
        row.reason.endswith("; the worker cannot be reached: ActorDiedError")
        for row in receipt.rows
    ), receipt
    assert ("ActorGroup-0: the worker cannot be reached: ActorDiedError",) == receipt.faults


def test_the_second_run_of_a_process(ray: Any, tmp_path: Path) -> None:
    """Its driver's tree has no part in the first one's, while the process's own tree has both."""
    for _ in range(2):
        with Profiler(config(tmp_path, steps=[])) as profiler, gpuprof.timer("work"):
            pass
        assert profiler.directory is not None
        (file,) = Path(profiler.directory).glob("*/Runner.json")
        tree = json.loads(file.read_text())["timing"]
        (loop,) = (child for child in tree["children"] if "main_loop" == child["key"])
        assert "Runner profile" == tree["name"]
        assert 1 == loop["count"]
        assert [1] == [child["count"] for child in loop["children"]]
    loop = next(
        child for child in gpuprof.timing().to_dict()["children"] if "main_loop" == child["key"]
    )
    assert loop["count"] >= 2


@pytest.mark.fault
def test_ray_shutdown_without_finalize(
    ray: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After a sudden end the closed report is complete and the tree seconds old."""
    temporary = make()
    command = [sys.executable, "-c", _JOB_WITHOUT_FINALIZE, temporary, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    assert float(done.stdout) < 60
    assert 1 == done.stderr.count(f"the run was not finalized; run `gpuprof collect {tmp_path}/")
    (tree,) = tmp_path.glob("*/*/ActorGroup-0.start-1.json")
    session = json.loads(tree.read_text())
    # step 2 is captured, and 3 comes after it
    for name in ("timing", "while_profiling"):
        counts = {node["key"]: node["count"] for node in session[name]["children"]}
        assert 2 == counts["actor/run_training"]
    # nsys is still ending when Ray is gone; it needs the worker's end for the report, since step 5
    # never came.
    (run,) = tmp_path.iterdir()
    wait_until(lambda: all(start.ended for start in read_node(str(run)).starts), "ended: nsys")
    (report,) = tmp_path.glob("*/*/ActorGroup-0.start-1.nsys-rep")
    assert 3 == labels(str(report))["forward-2"]


def test_a_bad_option_is_refused_before_anything_starts(ray: Any, tmp_path: Path) -> None:
    """With the key and nsys's own words."""
    profiler = Profiler(
        config(tmp_path, steps=[0], nsight={"options": {"t": "nvtx", "no-such-option": 1}})
    )
    with pytest.raises(
        ToolError,
        match=(
            r"nsight\.options\.no-such-option: .*nsys.* says, .*: unrecognised option "
            r"'--no-such-option=1'"
        ),
    ):
        profiler.worker_options(group="ActorGroup", rank=0)
    profiler.finalize()


def test_an_option_that_is_bad_on_the_node_only_does_not_hang_the_job(
    ray: Any, tmp_path: Path
) -> None:
    """If nsys fails after the start, the worker runs without it, with a reason."""
    nsys = tmp_path / "nsys"
    nsys.write_text(
        f'#!/bin/sh\n[ -e "{tmp_path}/worse" ] && set -- "$1" --no-such-option "$@"\nexec nsys '
        '"$@"\n'
    )
    nsys.chmod(0o755)
    with Profiler(
        config(tmp_path / "out", steps=[0], nsight={"executable": str(nsys)}, on_error="disable")
    ) as profiler:
        options = profiler.worker_options(group="ActorGroup", rank=0, num_cpus=0)
        (tmp_path / "worse").touch()
        actor = ray.remote(Worker).options(**options).remote()
        profiler.add(actor, group="ActorGroup", rank=0)
        with profiler.step(0):
            assert 0 == ray.get(actor.train.remote(0))
    (row,) = profiler.finalize().rows
    assert "missing" == row.state
    assert (
        "the worker ran without the profiler: nsys does not start (exit code 1): "
        "unrecognised option '--no-such-option'; "
        f"log {row.node}/ActorGroup-0.start-1.log"
    ) == row.reason


def test_an_actor_that_never_ends_by_itself(ray: Any, tmp_path: Path) -> None:
    """An endless coroutine keeps neither `finalize` from ending nor its report from coming."""
    with Profiler(config(tmp_path, steps=[0, 5])) as profiler:
        actor = start(profiler, "ActorGroup", 0, AsyncWorker)
        with profiler.step(0):
            actor.wait_for_ever.remote()
            ray.get(actor.generate.remote(0))
    captured, missing = profiler.finalize().rows
    assert "complete" == captured.state
    assert (
        "the window was never opened; none of its steps ran; the run's were 0 to 0"
        == missing.reason
    )
    assert 1 == labels(captured.file)["rollout/generate"]


def test_a_worker_that_never_imports_gpuprof_is_captured_for_life(ray: Any, tmp_path: Path) -> None:
    """Without `steps`, even an uninstrumented actor leaves a report."""

    class Plain:
        def work(self) -> int:
            return 1

    with Profiler(config(tmp_path, steps=None)) as profiler:
        assert 1 == ray.get(start(profiler, "ActorGroup", 0, Plain).work.remote())
    assert ["complete"] == [row.state for row in profiler.finalize().rows]


_JOB_OF_A_FRAMEWORK = """
import os, sys
import gpuprof
import ray
from gpuprof.ray import Profiler
from support.integration_workers import Worker
from support.launching import config, start

address, output = sys.argv[1:]
profiler = Profiler(config(output, steps=[0]))
runtime_env = profiler.job_runtime_env({"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
ray.init(address=address, log_to_driver=False, runtime_env=runtime_env)


@gpuprof.timer("in_a_task")
def work():
    from gpuprof.ray import wrapped
    gpuprof._session.public.session().write()
    return wrapped()


with profiler:
    actor = start(profiler, "ActorGroup", 0)
    with profiler.step(0):
        ray.get(actor.train.remote(0))
    print(ray.get(ray.remote(work).options(num_cpus=0).remote()),
          ray.get(actor.is_wrapped.remote()))
"""


def test_what_a_framework_starts_leaves_its_tree(tmp_path: Path) -> None:
    """With the job's runtime environment a plain task has its tree; actors keep their names."""
    command = [sys.executable, "-c", _JOB_OF_A_FRAMEWORK, address(), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert 0 == done.returncode, done.stderr
    assert "False True" == done.stdout.strip().splitlines()[-1], done.stderr
    trees = [
        json.loads(file.read_text())["timing"]["children"]
        for file in tmp_path.glob("*/*/Worker-0.child-*.json")
    ]
    assert [["in_a_task"]] == [[node["key"] for node in tree] for tree in trees]
    assert ["ActorGroup-0.step-0.nsys-rep"] == [
        file.name for file in tmp_path.glob("*/*/*.nsys-rep")
    ]

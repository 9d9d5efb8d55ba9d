"""A run that one process begins and an actor drives, as a framework's controller does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._analysis import reading
from support.cluster import address
from support.waiting import DEADLINE

_DRIVER = """
import os, signal, sys, tempfile
import ray
from gpuprof.ray._joined import Joined, Starter

SETTINGS = {"backend": "none", "worker_groups": "all"}


class Worker:
    def work(self):
        pass


@ray.remote(num_cpus=0)
class Controller:
    def run(self, crashes):
        os.chdir(tempfile.gettempdir())  # where relative paths have another meaning
        with Joined({**SETTINGS, "output_dir": "elsewhere"}) as profiler:
            options = profiler.worker_options(group="Actor", rank=0, num_cpus=0)
            worker = ray.remote(Worker).options(**options).remote()
            profiler.add(worker, group="Actor", rank=0)
            for number in range(3):
                with profiler.step(number):
                    ray.get(worker.work.remote())
            if crashes:
                os.kill(os.getpid(), signal.SIGKILL)


ray.init(address=sys.argv[1], log_to_driver=False)
for crashes in (False, True):
    with Starter({**SETTINGS, "output_dir": sys.argv[2 + crashes]}) as profiler:
        options = profiler.worker_options(group="Controller", rank=0)
        controller = Controller.options(**options).remote()
        profiler.add(controller, group="Controller", rank=0)
        try:
            ray.get(controller.run.remote(crashes))
        except ray.exceptions.RayError:
            assert crashes
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, Any]]]:
    """A run whose controller has ended, and one whose controller was killed."""
    places = [tmp_path_factory.mktemp(name) for name in ("ended", "killed")]
    with (places[0] / "log").open("w") as log:
        subprocess.run(
            [sys.executable, "-c", _DRIVER, address(), *map(str, places)],
            timeout=DEADLINE,
            check=True,
            stderr=log,
        )
    manifests = [manifest for place in places for manifest in place.glob("*/manifest.json")]
    return [(manifest.parent, json.loads(manifest.read_text())) for manifest in manifests]


def test_there_is_one_run(ended: list[tuple[Path, dict[str, Any]]]) -> None:
    """Its manifest has the workers of both processes."""
    workers = [f"{worker['group']}-{worker['rank']}" for worker in ended[0][1]["workers"]]
    assert ["Actor-0", "Controller-0"] == sorted(workers)


def test_the_controllers_steps_are_the_runs(ended: list[tuple[Path, dict[str, Any]]]) -> None:
    """Its ledger is the driver's; the workers' are beside it."""
    run = reading.read(ended[0][0])
    assert [0, 1, 2] == [step.number for step in run.steps]
    assert run.driver is not None
    assert "Controller-0" == run.processes[run.driver].name
    assert ["Actor"] == list(run.groups)


def test_the_process_that_waits_is_not_called_the_driver(
    ended: list[tuple[Path, dict[str, Any]]],
) -> None:
    """Its tree is printed by its name: the controller is who drives."""
    printed = (ended[0][0].parent / "log").read_text()
    assert "Runner profile tree view" in printed
    assert "(the driver) profile" not in printed


def test_a_killed_controller_loses_no_worker(ended: list[tuple[Path, dict[str, Any]]]) -> None:
    """What it knew is lost; what has started is there, and who was killed."""
    directory, manifest = ended[1]
    assert "Controller-0" in [early["worker"] for early in manifest["ended_early"]]
    assert {"Actor-0", "Controller-0"} == {
        file.name.partition(".")[0] for file in directory.glob("*/*.json")
    } - {"Runner"}

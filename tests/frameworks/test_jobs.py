"""Released frameworks, unchanged on disk, with gpuprof: `make test-frameworks`."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.cluster import make
from support.report_reader import labels

JOBS = Path(__file__).parent / "jobs"
PATIENCE = 600.0
"""Seconds for a job: verl's imports alone take a minute on a busy machine."""
ON = {
    "rlinf": (
        "cluster.profiling.backend=nsight",
        "cluster.profiling.worker_groups=[ActorGroup]",
        "cluster.profiling.steps=[1,3]",
        "cluster.profiling.options={t: nvtx}",
    ),
    "verl": (
        "global_profiler.tool=nsys",
        "global_profiler.steps=[2,4]",
        "global_profiler.global_tool_config.nsys.worker_nsight_options.trace=nvtx",
        "actor_rollout_ref.actor.profiler.enable=True",
        "actor_rollout_ref.actor.profiler.all_ranks=True",
    ),
}
"""The frameworks' own settings: two ranks, two steps."""
OFF = {
    "rlinf": (*ON["rlinf"], "cluster.profiling.enabled=False"),
    "verl": ("global_profiler.steps=null",),
}
OF_TESTS = ("GPUPROF_TEST_PROCESS", "GPUPROF_REQUIRE_NSYS")
GROUP = {"rlinf": "ActorGroup", "verl": "actor_rollout_ref"}
IN_WORKERS = {
    "rlinf": {"run_training", "optimizer_step", "generate", "predict", "env_step"},
    "verl": {"actor_update", "update_policy", "generate_sequences", "tool_call"},
}
IN_DRIVER = {
    "rlinf": {"step", "generate_rollouts", "actor_training"},
    "verl": {"step", "gen", "update_actor"},
}

frameworks = pytest.mark.parametrize(
    "framework",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                importlib.util.find_spec(name) is None,
                reason=f"{name} is not installed (make test-frameworks)",
            ),
        )
        for name in ON
    ],
)
pytestmark = [pytest.mark.nsys, frameworks]


@attrs.frozen
class Job:
    """A job that has ended.

    Attributes:
        result: what it wrote.
        runs: its runs' directories.
        log: what it printed.
        changed: the framework's files that are no longer as they were.
    """

    result: dict[str, Any]
    runs: list[Path]
    log: str
    changed: set[str]

    @property
    def receipt(self) -> dict[str, Any]:
        (run,) = self.runs
        receipt: dict[str, Any] = json.loads((run / "manifest.json").read_text())["receipt"]
        return receipt

    @property
    def trees(self) -> str:
        (run,) = self.runs
        command = [sys.executable, "-m", "gpuprof", "report", str(run)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


Run = Callable[[str, str], Job]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Ray cluster of one node: RLinf would otherwise take any that runs on this machine."""
    from ray.cluster_utils import Cluster

    before = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"  # a token would be a file in the home directory
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=16, temp_dir=make(), include_dashboard=False)
        yield cluster.address
    finally:
        cluster.shutdown()
        os.environ.pop("RAY_AUTH_MODE")
        if before is not None:
            os.environ["RAY_AUTH_MODE"] = before


@pytest.fixture(scope="module")
def ran(address: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a framework's job: ``plain``, or integrated with its profiler ``on`` or ``off``."""

    @functools.cache
    def attempt(framework: str, mode: str) -> tuple[int, Job]:
        place = tmp_path_factory.mktemp(f"{framework}-{mode}")
        of = importlib.util.find_spec(framework)
        assert of is not None
        assert of.origin is not None
        words = [sys.executable, str(JOBS / f"{framework}_job.py"), *arguments(framework, place)]
        if mode != "plain":
            words = [sys.executable, "-m", "gpuprof", "run", "--integrate", framework, *words]
        before = sums(Path(of.origin).parent)
        done = subprocess.run(
            [*words, *(ON if mode == "on" else OFF)[framework]],
            env={**os.environ, "RAY_ADDRESS": address, "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            cwd=place,
            check=False,
        )
        runs = sorted(path for path in (place / "profile").glob("*") if path.is_dir())
        file = place / "result.json"
        result = json.loads(file.read_text()) if file.exists() else {}
        changed = before ^ sums(Path(of.origin).parent)
        return done.returncode, Job(result, runs, done.stdout, changed)

    def run(framework: str, mode: str) -> Job:  # a job that has failed is not run again
        code, job = attempt(framework, mode)
        assert 0 == code, job.log
        return job

    return run


def arguments(framework: str, place: Path) -> list[str]:
    """What a job is told in each mode."""
    result, reports = place / "result.json", place / "profile"
    if framework == "rlinf":
        return [str(result), f"cluster.profiling.output_dir={reports}"]
    return [
        f"trainer.default_local_dir={result}",
        f"global_profiler.save_path={reports}",
    ]


def sums(package: Path) -> set[str]:
    """A package's files of Python, each with its checksum."""
    return {
        f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in package.rglob("*.py")
    }


def test_every_report_is_complete(ran: Run, framework: str) -> None:
    """Two windows on each of two ranks."""
    rows = ran(framework, "on").receipt["rows"]
    assert ["complete"] * 4 == [row["state"] for row in rows]


def test_rows_have_the_names_of_the_framework(ran: Run, framework: str) -> None:
    """The worker group is the one that the framework's own settings select."""
    rows = ran(framework, "on").receipt["rows"]
    expected = {f"{GROUP[framework]}-{rank}" for rank in range(2)}
    assert expected == {row["worker"] for row in rows}


def test_own_labels_are_in_every_report(ran: Run, framework: str) -> None:
    """What the framework times itself, synchronous or not, is a range."""
    (run,) = ran(framework, "on").runs
    reports = sorted(run.rglob("*.nsys-rep"))
    assert 4 == len(reports)
    for report in reports:
        assert IN_WORKERS[framework] <= labels(str(report)).keys()


def test_each_scope_is_one_range(ran: Run, framework: str) -> None:
    """A framework's own range and ours are not both there."""
    (run,) = ran(framework, "on").runs
    for report in run.rglob("*.nsys-rep"):
        found = labels(str(report))
        assert dict.fromkeys(IN_WORKERS[framework], 1) == {
            name: found[name] for name in IN_WORKERS[framework]
        }


def test_own_labels_are_in_the_trees(ran: Run, framework: str) -> None:
    """On the driver and on the workers."""
    words = ran(framework, "on").trees.replace(":", " ").split()
    assert IN_WORKERS[framework] | IN_DRIVER[framework] <= set(words)


def test_results_are_unchanged(ran: Run, framework: str) -> None:
    """The job computes what it computes without gpuprof; workers report the same timings, too."""
    assert ran(framework, "plain").result["results"] == ran(framework, "on").result["results"]


def test_own_log_of_timings_is_unchanged(ran: Run, framework: str) -> None:
    """The framework has every timing under its name, as without gpuprof."""
    assert ran(framework, "plain").result["timed"] == ran(framework, "on").result["timed"]


def test_no_file_of_the_framework_is_changed(ran: Run, framework: str) -> None:
    """Everything happens at run time."""
    assert set() == ran(framework, "on").changed


def test_the_log_says_who_profiles(ran: Run, framework: str) -> None:
    """Once, in the process that makes the workers."""
    said = f"{framework}: its own profiler stays off, gpuprof does what its settings say"
    assert 1 == ran(framework, "on").log.count(said)


def test_switched_off_nothing_is_in_the_workers(ran: Run, framework: str) -> None:
    """No variable, no module, no file."""
    off = ran(framework, "off")
    assert [([], [])] * 2 == [
        ([name for name in worker["variables"] if name not in OF_TESTS], worker["modules"])
        for worker in off.result["seen"]
    ]
    assert [] == off.runs

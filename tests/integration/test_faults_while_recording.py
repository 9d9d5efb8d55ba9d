"""Faults of ours in a job that has never heard of gpuprof: each is said, and the job goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import cluster
from support.launched import GPUPROF, run

PLANTED = """
import os
import wrapt

def fail(*_, **__):
    raise ZeroDivisionError("planted")

def unless(allowed, function):
    return lambda *args, **options: (function if allowed(*args, **options) else fail)(
        *args, **options
    )

if os.environ["FAULTS"] == "parts":
    @wrapt.when_imported("gpuprof.ray._unmodified")
    def naming(module):
        module._class_name = unless(lambda c: "Unnamed" not in repr(c), module._class_name)

    @wrapt.when_imported("gpuprof.ray._announced")
    def store(module):
        module.next_rank = unless(lambda run, group: "Unranked" not in group, module.next_rank)
        module.connect = fail

    @wrapt.when_imported("gpuprof.ray._profiler")
    def planning(module):
        made = module.Profiler
        options = made.worker_options
        made.worker_options = unless(lambda *_, group, **__: group != "Unplanned", options)

    @wrapt.when_imported("gpuprof.ray._joined")
    def driver(module):
        for name in ("flush", "tasks_runtime_env", "finalize"):
            setattr(module.Launched, name, fail)

    @wrapt.when_imported("gpuprof._session.instruments.instrument")
    def calls(module):
        module.Call = unless(lambda name, *_: name != "ray.wait", module.Call)
else:
    @wrapt.when_imported("gpuprof.ray._joined")
    def run(module):
        module.Launched.__init__ = fail
"""
JOB = """
import os, ray

class Plain:
    def number(self):
        return 1

class Parent(Plain):
    def __init__(self):
        self.child = ray.remote(num_cpus=0)(UnrankedChild).remote()
    def child_number(self):
        return ray.get(self.child.number.remote())

class Unnamed(Plain): pass
class Unranked(Plain): pass
class UnrankedChild(Plain): pass
class Unplanned(Plain): pass

variables = {key: os.environ[key] for key in ("PYTHONPATH", "FAULTS")}
ray.init(log_to_driver=False, runtime_env={"env_vars": variables})
actors = [
    ray.remote(num_cpus=0)(kind).remote() for kind in (Plain, Unnamed, Unranked, Unplanned, Parent)
]
for _ in range(2):
    refs = [actor.number.remote() for actor in actors]
    ready, _ = ray.wait(refs, num_returns=len(refs))
    print(len(ready), ray.get(refs), ray.get(actors[-1].child_number.remote()))
for actor in actors[:2]:
    ray.kill(actor)
ray.shutdown()
print("over")
"""
PRINTED = "5 [1, 1, 1, 1, 1] 1\n" * 2 + "over\n"


def logs() -> list[Path]:
    """What workers have written to their standard error streams."""
    return list(cluster.logs().glob("worker-*.err"))


def with_faults(directory: Path, faults: str) -> list[str]:
    """Run the job; the lines that gpuprof has logged of the planted faults."""
    before = set(logs())
    (directory / "sitecustomize.py").write_text(PLANTED)
    (directory / "job.py").write_text(JOB)
    variables = {"PYTHONPATH": str(directory), "RAY_ADDRESS": cluster.address(), "FAULTS": faults}
    done = run(directory, [*GPUPROF, "--", sys.executable, "job.py"], **variables)
    assert (0, PRINTED) == (done.returncode, done.stdout), done.stderr
    texts = [done.stderr, *(log.read_text() for log in logs() if log not in before)]
    lines = [line for text in texts for line in text.splitlines()]
    return [line.partition("] ")[2] or line for line in lines if "ZeroDivisionError" in line]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a job has logged in which each part of the recording fails once."""
    return with_faults(tmp_path_factory.mktemp("job"), "parts")


@pytest.mark.parametrize(
    "what",
    [
        "Ray: an actor",
        "Ray: Unranked",
        "Ray: UnrankedChild",
        "Ray: Unplanned",
        "Ray: tasks",
        "Ray: a kill",
        "Ray: the end",
        "Program-0: instruments: ray is switched off here, the job goes on",
    ],
)
def test_a_fault_is_said_once(logged: list[str], what: str) -> None:
    """In the process that has it; the job's results are its own."""
    assert 1 == len([line for line in logged if f"{what}: ZeroDivisionError: planted" in line])


def test_each_worker_says_that_it_cannot_connect(logged: list[str]) -> None:
    """Once: of those that have a session."""
    lines = [line for line in logged if "Ray: the driver: ZeroDivisionError" in line]
    assert lines


def test_a_run_that_cannot_begin_leaves_the_job_alone(tmp_path: Path) -> None:
    """It is said once, and no actor is changed."""
    logged = with_faults(tmp_path, "run")
    assert ["Ray: the run: ZeroDivisionError: planted; not recorded; the job goes on"] == [
        line.partition("WARNING ")[2] or line for line in logged
    ]

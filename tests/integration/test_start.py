"""`Profiler.start`: one call plans an actor, starts it and registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuprof.errors import ConfigError
from gpuprof.ray import Profiler
from support.integration_workers import Worker, prepare

GROUP = "A"


@pytest.fixture
def profiler(ray: Any, tmp_path: Path) -> Profiler:
    """A run without a profiler's program, that records every worker."""
    return Profiler({"backend": "none", "worker_groups": "all", "output_dir": str(tmp_path)})


def test_an_actor_in_one_call(ray: Any, profiler: Profiler) -> None:
    """The callable gets the caller's options and the worker's row; its handle comes back."""
    given: dict[str, Any] = {}

    def make(options: dict[str, Any]) -> Any:
        given.update(options)
        return ray.remote(Worker).options(**options).remote()

    with profiler:
        variables = {"env_vars": {"MINE": "1"}}
        actor = profiler.start(make, group=GROUP, rank=0, num_cpus=0, runtime_env=variables)
        with profiler.step(0):
            assert 0 == ray.get(actor.train.remote(0))
    assert {"num_cpus", "runtime_env"} == given.keys()
    assert {"MINE", "GPUPROF_WORKER"} == given["runtime_env"]["env_vars"].keys()
    assert {"env_vars": {"MINE": "1"}} == variables
    assert () == profiler.finalize().faults  # nothing about an actor that was not registered


def test_a_callable_that_raises_leaves_no_worker(ray: Any, profiler: Profiler) -> None:
    """Its error passes, the run does not know the worker, and the rank is free."""

    def fail(options: dict[str, Any]) -> Any:
        raise KeyError("checkpoint")

    with profiler:
        with pytest.raises(KeyError, match="checkpoint"):
            profiler.start(fail, group=GROUP, rank=0, num_cpus=0)
        assert [] == profiler.plan
        remote = ray.remote(Worker)
        profiler.start(
            lambda options: remote.options(**options).remote(), group=GROUP, rank=0, num_cpus=0
        )
        assert ["A-0"] == [planned.worker.name for planned in profiler.plan]
    assert () == profiler.finalize().faults


def test_a_failed_restart_leaves_the_first_start_in_the_run(ray: Any, profiler: Profiler) -> None:
    """The actor that died keeps its row, and a later start of the rank takes its place."""
    remote = ray.remote(Worker)

    def make(options: dict[str, Any]) -> Any:
        return remote.options(**options).remote()

    def fail(options: dict[str, Any]) -> Any:
        raise KeyError("checkpoint")

    with profiler:
        first = profiler.start(make, group=GROUP, rank=0, num_cpus=0)
        with pytest.raises(ConfigError, match="A-0: an actor of this group and rank is still"):
            profiler.start(make, group=GROUP, rank=0, num_cpus=0)
        planned = profiler.plan
        ray.kill(first)
        with pytest.raises(KeyError):
            profiler.start(fail, group=GROUP, rank=0, num_cpus=0)
        assert planned == profiler.plan
        second = profiler.start(make, group=GROUP, rank=0, num_cpus=0)
        assert 1 == ray.get(second.train.remote(1))
    assert () == profiler.finalize().faults


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (lambda actor, task, options: None, "NoneType"),
        (lambda actor, task, options: actor.options(**options), "ActorOptionWrapper"),
        (lambda actor, task, options: task.options(**options).remote(0), "ObjectRef"),
    ],
    ids=["nothing", "class", "task"],
)
def test_a_callable_that_returns_no_handle(
    ray: Any, profiler: Profiler, make: Any, given: str
) -> None:
    """The error says what it returned, and the run does not know the worker."""
    actor, task = ray.remote(Worker), ray.remote(prepare)
    with profiler:
        with pytest.raises(ConfigError, match=f"A-0: expected an actor's handle, got {given};"):
            profiler.start(
                lambda options: make(actor, task, options), group=GROUP, rank=0, num_cpus=0
            )
        assert [] == profiler.plan


def test_without_profiling_the_options_are_the_callers(ray: Any) -> None:
    """Switched off, or after the run's end, the callable gets what the caller gave."""
    seen: list[dict[str, Any]] = []

    def make(options: dict[str, Any]) -> Any:
        seen.append(options)
        return ray.remote(Worker).options(**options).remote()

    with Profiler({"backend": "none", "enabled": False}) as profiler:
        actor = profiler.start(make, group=GROUP, rank=0, num_cpus=0)
        assert 3 == ray.get(actor.train.remote(3))
    late = profiler.start(make, group=GROUP, rank=1, num_cpus=0)
    assert 3 == ray.get(late.train.remote(3))
    assert [{"num_cpus": 0}, {"num_cpus": 0}] == seen

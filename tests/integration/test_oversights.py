"""Likely mistakes are reported: actors never added, unknown names, lost options."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gpuprof.errors import ConfigError
from gpuprof.ray import Profiler
from support.integration_workers import Worker
from support.launching import config, start

pytestmark = pytest.mark.nsys


def test_an_actor_that_was_never_added(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An actor that was not added is named once, and in the receipt, without a long wait."""
    with Profiler(config(tmp_path)) as profiler:
        known = start(profiler, "ActorGroup", 0)
        forgotten = (
            ray.remote(Worker)
            .options(**profiler.worker_options(group="ActorGroup", rank=1, num_cpus=0))
            .remote()
        )
        for step in range(6):
            with profiler.step(step):
                ray.get([known.train.remote(step), forgotten.train.remote(step)])
            assert (step >= 2) == any("not registered" in message for message in caplog.messages)
        ended = time.monotonic()
        profiler.finalize(timeout=3600)  # which it would wait for one that it can end
    assert time.monotonic() - ended < 600
    said = (
        "ActorGroup-1: its windows are not opened (step 2): the actor was not registered; call "
        "profiler.add"
    )
    assert 1 == caplog.messages.count(said)
    assert [
        "",
        "",
        *["the window was never opened; the actor was not registered; call profiler.add"] * 2,
    ] == [row.reason for row in profiler.finalize().rows]
    assert 9 == ray.get(forgotten.train.remote(9))


def test_an_actor_that_comes_after_the_end(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs as if there were no gpuprof, and the log says what to do."""
    with Profiler(config(tmp_path)) as profiler:
        start(profiler, "ActorGroup", 0)
    assert {"num_cpus": 0} == profiler.worker_options(group="ActorGroup", rank=1, num_cpus=0)
    late = ray.remote(Worker).options(num_cpus=0).remote()
    profiler.add(late, group="ActorGroup", rank=1)
    with profiler.step(2):
        assert 2 == ray.get(late.train.remote(2))
    said = (
        "ActorGroup-1: not profiled: the run has ended; start workers inside "
        "`with Profiler(...)`, or before finalize"
    )
    assert [said, said] == caplog.messages[-2:]


def test_names_that_no_worker_has(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt group is named once at the first step, and in the receipt."""
    said = "worker_groups: 'ActorGrup' matches none of ActorGroup; did you mean 'ActorGroup'?"
    with Profiler(config(tmp_path, worker_groups=["ActorGrup"])) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        assert said not in caplog.messages
        for step in range(2):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
            assert 1 == caplog.messages.count(said)
    assert () == profiler.finalize().rows
    assert (said,) == profiler.finalize().faults


def test_an_actor_without_our_options(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Actors missed at the next step are named; those of another group are not."""
    said = "ActorGroup-0, ActorGroup-1: not captured: start each actor with profiler.start"
    with Profiler(config(tmp_path)) as profiler:
        for group, rank in (("ActorGroup", 0), ("ActorGroup", 1), ("EnvGroup", 0)):
            profiler.add(ray.remote(Worker).options(num_cpus=0).remote(), group=group, rank=rank)
        for step in range(2):
            with profiler.step(step):
                pass
            assert 1 == caplog.messages.count(said)
    assert (said,) == profiler.finalize().faults


def test_an_actor_with_its_own_profiler_is_refused(ray: Any, tmp_path: Path) -> None:
    """Ray's own `nsight` key and gpuprof would each replace the worker's command."""
    profiler = Profiler(config(tmp_path, steps=[0]))
    with pytest.raises(
        ConfigError, match=r"runtime_env\.nsight: 'default' is not valid together with gpuprof"
    ):
        profiler.worker_options(group="ActorGroup", rank=0, runtime_env={"nsight": "default"})
    profiler.finalize()


def test_an_unused_worker_is_named_in_the_receipt(ray: Any, tmp_path: Path) -> None:
    """Options that were asked for and never used are a row that says so."""
    with Profiler(config(tmp_path, steps=[0])) as profiler:
        profiler.worker_options(group="ActorGroup", rank=0)
    (row,) = profiler.finalize().rows
    assert "missing" == row.state
    assert "the worker never started" == row.reason

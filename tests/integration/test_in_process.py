"""A backend that works inside the workers and puts nothing in front of them, on real Ray."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuprof.ray import Profiler
from support import plugins
from support.launching import config, start
from support.waiting import wait_until

TRACER = """
import attrs, pathlib
from gpuprof.backend import hookimpl

@attrs.frozen
class Options:
    pass

class Tracer:
    Options = Options
    def __init__(self, options):
        self.started = False
    @hookimpl
    def start_capture(self):
        self.started = True
    @hookimpl
    def stop_capture(self, worker, window):
        if not self.started:
            return None
        file = pathlib.Path(worker.final_stem(window) + ".trace")
        file.write_text("recorded")
        return [file]
    @hookimpl
    def expected_files(self, worker, windows):
        return {window.number: worker.final_stem(window) + ".trace" for window in windows}
"""


@pytest.fixture
def tracer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[dict[str, Any]]:
    """Installs the backend; a runtime environment in which workers have it, too."""
    site = tmp_path / "site"
    site.mkdir()
    more = getattr(request, "param", "")
    module = plugins.install(
        site, TRACER.replace("class Tracer:\n", more or "class Tracer:\n"), tracer="Tracer"
    )
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield {"env_vars": {"PYTHONPATH": f"{site}:{Path(__file__).parents[1]}"}}
    sys.modules.pop(module, None)


def test_the_whole_life_of_an_actor_that_lives_on(
    ray: Any, tmp_path: Path, tracer: dict[str, Any]
) -> None:
    """`finalize` closes the windows of actors that are not wrapped, and does not end the actors."""
    with Profiler(config(tmp_path, backend="tracer", steps=None)) as profiler:
        actors = [start(profiler, "ActorGroup", rank, runtime_env=tracer) for rank in range(2)]
        ray.get([actor.train.remote(0) for actor in actors])
    rows = profiler.finalize().rows
    assert ["complete"] * 2 == [row.state for row in rows]
    assert ["recorded"] * 2 == [Path(str(row.file)).read_text() for row in rows]
    assert () == profiler.finalize().faults
    ray.get([actor.train.remote(1) for actor in actors])  # they live


def test_a_step_waits_for_a_worker_that_ray_is_still_starting(
    ray: Any, tmp_path: Path, tracer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor that takes longer to start than windows to open is captured from its first step."""
    monkeypatch.setattr("gpuprof.ray._windows.OPEN_DEADLINE", 10.0)
    may_start = tmp_path / "may-start"

    @ray.remote(num_cpus=0)
    class Slow:
        def __init__(self, may_start: Path) -> None:
            while not may_start.exists():
                time.sleep(0.05)

        def train(self) -> None:
            pass

    with Profiler(config(tmp_path, backend="tracer", steps=[0])) as profiler:
        options = profiler.worker_options(group="ActorGroup", rank=0, runtime_env=tracer)
        actor = Slow.options(**options).remote(may_start)
        profiler.add(actor, group="ActorGroup", rank=0)
        timer = threading.Timer(11.0, may_start.touch)
        timer.start()
        with profiler.step(0):
            ray.get(actor.train.remote())
    assert ["complete"] == [row.state for row in profiler.finalize().rows]


@pytest.mark.parametrize(
    "tracer", ["class Tracer:\n    start_in_thread = True\n"], indirect=True, ids=["in the thread"]
)
def test_a_step_that_only_a_worker_can_mark_is_said_to_be(
    ray: Any, tmp_path: Path, tracer: dict[str, Any]
) -> None:
    """Neither `profiler.step` nor the key step_at would help."""
    with Profiler(config(tmp_path, backend="tracer", steps=[2])) as profiler:
        ray.get(start(profiler, "ActorGroup", 0, runtime_env=tracer).train.remote(0))
    (missing,) = profiler.finalize().rows
    said = "no step was begun; mark it with gpuprof.step in the worker: the backend records the"
    assert said in missing.reason


def test_an_actor_that_the_job_has_dropped_ends_after_the_run(
    ray: Any, tmp_path: Path, tracer: dict[str, Any]
) -> None:
    """After `finalize` no handle of ours keeps an actor alive, whatever becomes of the profiler."""
    with Profiler(config(tmp_path, backend="tracer", steps=[0])) as profiler:
        actor = start(profiler, "ActorGroup", 0, runtime_env=tracer)
        with profiler.step(0):
            pid = ray.get(actor.identity.remote())["pid"]
    assert ["complete"] == [row.state for row in profiler.finalize().rows]
    assert Path(f"/proc/{pid}").exists()
    del actor
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "ended: the actor")

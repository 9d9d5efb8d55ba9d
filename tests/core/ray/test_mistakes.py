"""What users forget or mix up, as Ray's table of actors tells it."""

from __future__ import annotations

import pytest
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof.ray import _mistakes
from gpuprof.ray._mistakes import MistakeLog, UnregisteredActors


def expecting(*keys: tuple[str, int]) -> UnregisteredActors:
    """Workers of a run without a profiler, not registered yet."""
    expected = UnregisteredActors("run")
    planner = Planner(load({"backend": "none", "worker_groups": "all"}), "run", "/out")
    for key in keys:
        expected.expect(key, planner.worker(*key), is_selected=True)
    return expected


def test_an_actor_that_was_never_added_is_named_without_a_profiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, at the next step; tasks are in no table of actors, and are not named."""
    table = [("A", 0), ("A", 1)]
    monkeypatch.setattr(_mistakes, "_actors_started_here", lambda run, alive: iter(table))
    expected = expecting(("A", 0), ("A", 1), ("A", 2), ("Task", 0))
    expected.remove(("A", 2))
    while expected.first <= 0:
        expected.warn(0)
    (said,) = caplog.messages
    assert said.startswith("A-0, A-1: the actor was not registered; call profiler.add")


def test_an_actor_without_windows_that_rays_table_has_late(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is looked for again."""
    table: list[tuple[str, int]] = []
    monkeypatch.setattr(_mistakes, "_actors_started_here", lambda run, alive: iter(table))
    expected = expecting(("A", 0))
    expected.warn(0)
    assert [] == caplog.messages
    table.append(("A", 0))
    expected.warn(1)
    assert 1 == len(caplog.messages)


def test_a_misspelt_group_is_a_fault_without_a_profiler() -> None:
    """As with one; a name that another job has is none."""
    planner = Planner(load({"backend": "none", "worker_groups": ["Actr", "Env"]}), "run", "/out")
    rows = [planner.worker("Actor", 0)]
    assert [
        "worker_groups: 'Actr' matches none of Actor; did you mean 'Actor'?",
        "worker_groups: 'Env' matches none of Actor",
    ] == MistakeLog(planner).faults(rows)
    assert [] == MistakeLog(planner).faults([*rows, planner.worker("Env", 0)])

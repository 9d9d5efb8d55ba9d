"""What users forget or mix up, as Ray's table of actors tells it."""

from __future__ import annotations

import pytest
from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof.ray import _mistakes
from gpuprof.ray._mistakes import MistakeLog


def _planner() -> Planner:
    return Planner(load({"backend": "nsight", "worker_groups": "all", "steps": [2]}), "run", "/out")


class _Id:
    def hex(self) -> str:
        return "a1"


class _Handle:
    _actor_id = _Id()


def test_an_actor_that_rays_table_has_late(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is looked for again at the next step, and named once."""
    table: list[tuple[str, tuple[str, int]]] = []
    monkeypatch.setattr(_mistakes, "_actors_started_here", lambda run, alive: iter(table))
    mistakes = MistakeLog(_planner())
    mistakes.note_added(_Handle(), "Env", 1, wrapped=True)
    mistakes.warn([])
    assert [] == [message for message in caplog.messages if "was started as" in message]
    assert mistakes.due
    table.append(("a1", ("Actor", 0)))
    mistakes.warn([])
    assert ["Env-1: this actor was started as Actor-0"] == [
        message.partition(";")[0] for message in caplog.messages if "was started as" in message
    ]
    assert not mistakes.due


def test_an_actor_that_rays_table_never_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for three times: the table may be long."""
    looked: list[str] = []

    def look(run: str, alive: bool) -> list[tuple[str, tuple[str, int]]]:
        looked.append(run)
        return []

    monkeypatch.setattr(_mistakes, "_actors_started_here", look)
    mistakes = MistakeLog(_planner())
    mistakes.note_added(_Handle(), "Env", 1, wrapped=True)
    while mistakes.due:
        mistakes.warn([])
    assert 3 == len(looked)

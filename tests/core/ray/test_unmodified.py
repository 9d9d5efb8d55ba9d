"""What is put around RLlib's functions."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gpuprof._session import public
from gpuprof.frameworks import _changes
from gpuprof.ray import _unmodified


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged of faults."""
    problems: list[str] = []
    monkeypatch.setattr(_changes, "say", lambda problem, *_: problems.append(problem))
    return problems


def fail(*_: Any) -> None:
    """A fault of ours."""
    raise ZeroDivisionError("planted")


def test_a_step_that_cannot_be_marked_is_the_librarys(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """It returns what it returns."""

    class Algorithm:
        iteration = 3

        def step(self) -> int:
            return self.iteration

    module: Any = SimpleNamespace(Algorithm=Algorithm)
    _unmodified._rllib_steps(module)
    monkeypatch.setattr(public, "forget_library_steps", fail)
    assert Algorithm().step() == 3
    assert said == ["RLlib: a step: ZeroDivisionError: planted"]


def test_a_method_that_cannot_be_timed_is_the_librarys(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """It returns what it returns."""

    class Runner:
        def sample(self, count: int) -> int:
            return count

    module = ModuleType("runners")
    module.Runner = Runner  # type: ignore[attr-defined]
    _unmodified._timed("Runner", ["sample"], module)
    monkeypatch.setattr(public, "timing", fail)
    assert Runner().sample(2) == 2
    assert said == ["Runner.sample: ZeroDivisionError: planted"]


def test_a_report_of_ray_train_is_a_meeting_of_all_ranks(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """Its scope waits, and it returns what it returns."""
    scopes = []

    class Timing:
        def add_time(self, name: str, waits_for: str) -> None:
            scopes.append((name, waits_for))

    monkeypatch.setattr(public, "timing", Timing)
    module: Any = ModuleType("train_fn_utils")
    module.report = lambda metrics: metrics
    _unmodified._train_report(module)
    assert module.report({"loss": 1}) == {"loss": 1}
    assert [("report", "barrier")] == scopes
    assert [] == said

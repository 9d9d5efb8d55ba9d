"""Metrics of the last step, of a worker that marks its own steps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import gpuprof
import pytest
from gpuprof._session import companion, public
from gpuprof._session.metrics import StepMetrics


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What the run's directory waits for; set at the end of the test."""
    event = threading.Event()
    monkeypatch.setattr(companion, "want_metrics", lambda directory: event.wait())
    monkeypatch.setattr(companion, "start", lambda directory: None)
    yield event
    event.set()


def test_a_directory_that_hangs_blocks_nobody(
    tmp_path: Path, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a node whose file server is away; the last step is still known."""
    metrics = StepMetrics(str(tmp_path))
    monkeypatch.setattr(public, "_metrics", metrics)
    metrics.step(3, 0.5)
    assert {"gpuprof/step": 3, "gpuprof/step_seconds": 0.5} == gpuprof.step_metrics()
    assert not hanging.is_set()
    metrics.end()


def test_a_run_directory_on_another_node_is_left_alone(tmp_path: Path) -> None:
    """Nothing is made there, and no companion is started."""
    metrics, before = StepMetrics(str(tmp_path / "run")), threading.enumerate()
    metrics.begin()
    for thread in set(threading.enumerate()).difference(before):
        thread.join()
    assert [] == list(tmp_path.iterdir())


def test_nothing_is_followed_once_the_run_has_ended(tmp_path: Path) -> None:
    """The last step is still known."""
    metrics, before = StepMetrics(str(tmp_path)), threading.enumerate()
    metrics.step(3, 0.5)
    metrics.end()
    metrics.begin()
    assert {"step": 3, "step_seconds": 0.5} == metrics.latest()
    assert set() == set(threading.enumerate()).difference(before)

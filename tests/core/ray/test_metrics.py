"""Metrics of steps, and receivers that are slow, hang or raise."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import gpuprof
import pytest
from gpuprof._session.metrics import Metrics
from gpuprof.ray import Profiler
from gpuprof.ray._metrics import Sink
from support.waiting import wait_until


def test_the_last_step_has_its_duration_and_rates() -> None:
    """And no rate of a step before it."""
    with Profiler({"backend": "none"}) as profiler:
        with profiler.step(0, tokens=512):
            pass
        with profiler.step(1, samples=8, buffer=3):
            pass
        metrics = gpuprof.step_metrics()
    assert [
        "gpuprof/buffer",
        "gpuprof/samples_per_second",
        "gpuprof/step",
        "gpuprof/step_seconds",
    ] == sorted(metrics)
    assert (1, 3) == (metrics["gpuprof/step"], metrics["gpuprof/buffer"])


def test_nothing_is_known_before_the_first_step() -> None:
    """So the dictionary is empty."""
    with Profiler({"backend": "none"}):
        assert {} == gpuprof.step_metrics()


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What a receiver that hangs waits for; set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_receiver_that_hangs_delays_no_step(
    hanging: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """What it does not take is counted, and said once while the job runs."""
    sink = Sink("ray_metrics", lambda metrics: hanging.wait())
    began = time.thread_time()
    for step in range(1000):
        sink.put({"step": step})
    assert time.thread_time() - began < 1
    assert ["ray_metrics: metrics of steps are dropped: the receiver is slow"] == caplog.messages
    dropped = sink.end()
    assert dropped in {
        f"ray_metrics: the metrics of {count} steps were dropped" for count in (999, 1000)
    }


def test_a_receiver_that_raises_is_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    """With one line in the log; the steps go on, and all are counted."""

    def refuse(metrics: Metrics) -> None:
        raise ValueError("no")

    sink = Sink("ray_metrics", refuse)
    for step in range(3):
        sink.put({"step": step})
    assert "ray_metrics: the metrics of 3 steps were dropped" == sink.end()
    assert ["ray_metrics: switched off, the job goes on: ValueError: no"] == caplog.messages


def test_a_receiver_that_takes_all_drops_nothing() -> None:
    """In the order of the steps."""
    sent: list[Metrics] = []
    sink = Sink("ray_metrics", sent.append)
    sink.put({"step": 0})
    sink.put({"step": 1})
    wait_until(lambda: len(sent) == 2, "sent: two steps")
    assert ("", [{"step": 0}, {"step": 1}]) == (sink.end(), sent)

"""Metrics of the last step as Ray's own metrics."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from gpuprof._log import log
from gpuprof._session.metrics import Metrics

_MOST = 64
"""Steps that may wait for Ray."""
_LAST = 1.0
"""Seconds that the end of the run waits for Ray."""
_LABELS = {"bound_share": "bound_by", "waits_share": "waits", "slowest_ratio": "slowest_rank"}
"""Metrics of somebody, and the metric with his name: a gauge has it as the tag ``of``."""


class Sink:
    """Sends metrics from a thread of its own, so that a slow receiver delays no step.

    Args:
        name: the key that has switched it on, for messages.
    """

    def __init__(self, name: str, send: Callable[[Metrics], object]) -> None:
        self._name = name
        self._send = send
        self._waiting: queue.Queue[Metrics | None] = queue.Queue(_MOST)
        self._faulted = False
        # one count for each thread
        self._refused = self._lost = 0
        self._thread = threading.Thread(target=self._run, name=f"gpuprof-{name}", daemon=True)
        self._thread.start()

    def put(self, metrics: Metrics) -> None:
        """Send the metrics of a step, unless too many steps wait already."""
        try:
            self._waiting.put_nowait(metrics)
        except queue.Full:
            self._refused += 1
            if self._refused == 1:
                log().warning("%s: metrics of steps are dropped: the receiver is slow", self._name)

    def end(self) -> str:
        """Wait a moment for what is on its way. Returns how much was dropped, in a sentence."""
        until = time.monotonic() + _LAST
        try:
            self._waiting.put(None, timeout=_LAST)
            self._thread.join(max(0.0, until - time.monotonic()))
        except queue.Full:
            pass
        dropped = (
            self._refused + self._lost + sum(metrics is not None for metrics in self._waiting.queue)
        )
        return f"{self._name}: the metrics of {dropped} steps were dropped" if dropped else ""

    def _run(self) -> None:
        while (metrics := self._waiting.get()) is not None:
            if self._faulted:
                self._lost += 1
                continue
            try:
                self._send(metrics)
            except Exception as error:
                self._faulted = True
                self._lost += 1
                log().warning(
                    "%s: switched off, the job goes on: %s: %s",
                    self._name,
                    type(error).__name__,
                    error,
                )


class RayGauges:
    """Ray's own metrics, which Ray exports for Prometheus on each node."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._gauges: dict[str, Any] = {}
        self._of: dict[str, str] = {}

    def send(self, metrics: Metrics) -> None:
        """Set a gauge for each number."""
        from ray.util.metrics import Gauge

        for name, value in metrics.items():
            if isinstance(value, str):
                continue
            gauge = self._gauges.get(name)
            if gauge is None:
                gauge = self._gauges[name] = Gauge(
                    f"gpuprof_{name}", f"{name} of the last step", ("run", "of")
                )
            of = str(metrics.get(_LABELS.get(name, ""), ""))
            earlier = self._of.get(name, of)
            if earlier != of:  # Ray would go on exporting it
                gauge.set(0.0, {"run": self._run, "of": earlier})
            self._of[name] = of
            gauge.set(float(value), {"run": self._run, "of": of})

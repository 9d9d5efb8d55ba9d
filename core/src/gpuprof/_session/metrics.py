"""Metrics of the last step."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from gpuprof._log import log
from gpuprof._session.totals import GAUGES, number_of

Metrics = dict[str, float | str]
_INTERVAL = 1.0
"""Seconds between two looks at what the companion has written."""


class StepMetrics:
    """What is known about the last step that has ended.

    Args:
        run_directory: the run directory; ``None`` if nothing is recorded.
    """

    def __init__(self, run_directory: str | None) -> None:
        self._run_directory = run_directory
        self._last: tuple[int, float] | None = None
        self._attributes: tuple[int, Mapping[str, float]] = (-1, {})
        self._recorded: Metrics = {}
        self._ended = threading.Event()
        self._begun = False

    def begin(self) -> None:
        """Look at the recorded steps from now on, on another thread.

        A second call does nothing, nor does a call after the end.
        """
        if self._begun or self._ended.is_set() or self._run_directory is None:
            return
        self._begun = True
        threading.Thread(
            target=self._follow, args=(self._run_directory,), name="gpuprof-metrics", daemon=True
        ).start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def step(self, number: int, seconds: float) -> None:
        """Note a step that has ended."""
        self._last = number, seconds

    def attributes(self, number: int, attributes: Mapping[str, float]) -> None:
        """Note the attributes of a step that has ended."""
        self._attributes = number, attributes

    def latest(self) -> Metrics:
        """The metrics of the last step."""
        metrics: Metrics = {}
        if self._last is not None:
            number, seconds = self._last
            metrics = {"step": number, "step_seconds": seconds}
            if self._attributes[0] == number and seconds > 0:
                for name, value in self._attributes[1].items():
                    amount = number_of(value)
                    if amount is not None:
                        rate = name not in GAUGES
                        key = f"{name}_per_second" if rate else name
                        metrics[key] = amount / seconds if rate else amount
        return metrics | self._recorded

    def _follow(self, run_directory: str) -> None:
        from gpuprof._session import companion

        if not os.path.isdir(run_directory):  # on another node
            return
        try:
            companion.want_metrics(run_directory)
        except OSError as error:
            log().warning("step_metrics: no figures of recorded steps: %s", error)
            return
        companion.start(run_directory)
        while not self._ended.wait(_INTERVAL):
            self._recorded = companion.metrics(run_directory) or self._recorded

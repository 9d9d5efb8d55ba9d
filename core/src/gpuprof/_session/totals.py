"""The sums of the attributes of a process's steps, such as frames, tokens and samples."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType

from gpuprof._log import log
from gpuprof._session.file import TotalsEntry

_LARGEST = 1e300
"""Sums of larger values may have no rate as a float."""


class Totals:
    """The sums of step attributes, and the time from the first step with attributes to the last.

    >>> from contextlib import nullcontext
    >>> totals = Totals()
    >>> for step in range(3):
    ...     with totals.step(nullcontext(), {"frames": 512, "loss": "low"}):
    ...         pass
    >>> totals.entry()["sums"]
    {'frames': 1536}
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._refused: set[str] = set()
        self._began: float | None = None
        self._ended = 0.0

    def step(
        self, inner: AbstractContextManager[object], attributes: Mapping[str, float]
    ) -> AbstractContextManager[None]:
        """A step whose attributes count once it has ended without an exception.

        Args:
            inner: the context manager of the same step, without attributes.
            attributes: the step's attributes by name.
        """
        return _CountedStep(self, inner, attributes)

    def begin(self) -> None:
        """Begin a step with attributes."""
        if self._began is None:
            self._began = perf_counter()

    def add(self, attributes: Mapping[str, float]) -> None:
        """End a step, and add its attributes to the sums."""
        self._ended = perf_counter()
        for name, value in attributes.items():
            # not `bool`, which is an integer; not a tensor, whose value the job would wait for
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if number and -_LARGEST < value < _LARGEST:  # not a number, too
                exact = int(value) if isinstance(value, numbers.Integral) else float(value)
                self._sums[name] = self._sums.get(name, 0) + exact
            elif name not in self._refused:
                self._refused.add(name)
                log().warning(
                    "step attribute %s: %.80r is not valid; expected a finite number, such as an "
                    "int or a float; the value is left out of the total",
                    name,
                    value,
                )

    def entry(self) -> TotalsEntry | None:
        """The totals in JSON types; ``None`` if there are none."""
        if self._began is None or not self._sums:
            return None
        return {"sums": dict(self._sums), "seconds": self._ended - self._began}


class _CountedStep(AbstractContextManager[None]):
    __slots__ = ("_attributes", "_inner", "_totals")

    def __init__(
        self,
        totals: Totals,
        inner: AbstractContextManager[object],
        attributes: Mapping[str, float],
    ) -> None:
        self._totals = totals
        self._inner = inner
        self._attributes = attributes

    def __enter__(self) -> None:
        self._totals.begin()
        self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._inner.__exit__(kind, error, trace)
        finally:
            if kind is None:
                self._totals.add(self._attributes)


def merge(entries: list[TotalsEntry]) -> TotalsEntry | None:
    """Add up the totals of processes that ran at the same time; ``None`` if there are none.

    >>> merge([{"sums": {"frames": 10}, "seconds": 1.0}, {"sums": {"frames": 20}, "seconds": 2.0}])
    {'sums': {'frames': 30}, 'seconds': 2.0}
    """
    if not entries:
        return None
    sums: dict[str, float] = {}
    for entry in entries:
        for name, value in entry["sums"].items():
            sums[name] = sums.get(name, 0) + value
    return {"sums": sums, "seconds": max(0.0, *(entry["seconds"] for entry in entries))}


def lines(entry: TotalsEntry) -> list[str]:
    """The totals as text, one line for each attribute.

    >>> lines({"sums": {"frames": 40960, "loss": 0.125}, "seconds": 26.5})
    ['frames: 40960 in all steps, 1545.7 per second', 'loss: 0.125 in all steps, 0.0047 per second']
    """
    return [
        f"{name}: {_text(value)} in all steps"
        + (f", {_rate(value / entry['seconds'])} per second" if entry["seconds"] else "")
        for name, value in entry["sums"].items()
    ]


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _rate(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"

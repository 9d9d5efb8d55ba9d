"""The sums of the attributes of a process's steps, such as frames, tokens and samples."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter

from gpuprof._log import log
from gpuprof._session.file import TotalsEntry

GAUGES = ("buffer", "peak_flops")
"""Attributes that say how things are in a step, so that adding them up over steps means nothing."""
_LARGE = 1e9
"""Rates from here on are printed in powers of ten, such as those of floating-point operations."""
_EXACT = 1 << 53
"""Integers below are exact as a float."""
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

    @contextmanager
    def step(
        self,
        inner: AbstractContextManager[object],
        attributes: Mapping[str, float],
        keep: Callable[[Mapping[str, float]], object] = bool,
    ) -> Iterator[None]:
        """A step whose attributes count once it has ended without an exception.

        Args:
            keep: called with the attributes as they count.
        """
        if self._began is None:
            self._began = perf_counter()
        with inner:
            yield
        self._add(attributes)
        keep(attributes)

    def _add(self, attributes: Mapping[str, float]) -> None:
        self._ended = perf_counter()
        for name, value in attributes.items():
            number = number_of(value)
            if number is not None:
                if name not in GAUGES:
                    self._sums[name] = self._sums.get(name, 0) + number
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


def number_of(value: object) -> float | None:
    """A finite number as an int or a float; ``None`` for anything else.

    A tensor is none, because the job would wait for its value; nor is a bool, although it is an
    integer.

    >>> number_of(3), number_of(0.5), number_of(True), number_of(float("nan")), number_of("3")
    (3, 0.5, None, None, None)
    """
    if type(value) is int and -_EXACT < value < _EXACT:  # fast, as most are
        return value
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
    except Exception:  # a huge fraction, or a type of the job's own
        return None
    return number if -_LARGEST < number < _LARGEST else None  # nor is nan


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
    if abs(value) >= _LARGE:
        return f"{value:.4g}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"

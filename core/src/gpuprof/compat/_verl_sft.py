"""verl's supervised trainer: `trainer.profile_interval` and one profiler at the top."""

from __future__ import annotations

from typing import Any

from gpuprof._config import sources
from gpuprof._config.structure import Invalid
from gpuprof.compat._verl_roles import Problems

INTERVAL = "trainer.profile_interval"
WORKER = "TrainingWorker"
"""verl's class of its workers."""
_EXPECTED = "[first, last] with 1 <= first <= last, or [-1, -1] for none"


def read_interval(settings: dict[str, Any], problems: Problems) -> list[str]:
    """The steps from the first to the last one, as gpuprof writes them; empty for none."""
    given = sources.find(settings, INTERVAL)[1]
    numbers = given if isinstance(given, list) else []
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        problems.append(f"{INTERVAL}: {Invalid(given, _EXPECTED)}")
        return []
    first, last = numbers
    if last < first or first < 0 <= last:
        problems.append(f"{INTERVAL}: {Invalid(given, _EXPECTED)}")
        return []
    # verl counts steps from 1 and starts at the first one, so a 0 starts nothing
    return [f"{first}:{last + 1}"] if first > 0 else []

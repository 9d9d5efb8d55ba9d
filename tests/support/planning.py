"""What the tests of the readers share: a plan of what a system's user has written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gpuprof
import pytest
import yaml
from gpuprof._plan.worker import PlannedWorker
from gpuprof.errors import ConfigError
from gpuprof.settings import read


def parsed(text: str) -> Any:
    """A documented example, as YAML."""
    return yaml.safe_load(text)


def planned(system: str, settings: Any, workers: Any, worker: str) -> PlannedWorker:
    """The row of one worker."""
    rows = {row.worker.name: row for row in gpuprof.plan(settings, workers, system=system).rows}
    return rows[worker]


def profiled(system: str, settings: Any, workers: Any = None) -> list[str]:
    """The names of the workers that are profiled."""
    return [
        row.worker.name
        for row in gpuprof.plan(settings, workers, system=system).rows
        if row.profiled
    ]


def refused(system: str, settings: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with the settings."""
    with pytest.raises(ConfigError) as caught:
        gpuprof.plan(settings, {"x": 1}, system=system)
    return list(caught.value.problems)


def notes(system: str, settings: Mapping[str, Any]) -> list[str]:
    """What is read otherwise than it was written."""
    return list(read(system, settings).notes)

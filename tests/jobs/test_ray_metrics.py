"""Metrics of steps on the port from which Prometheus takes those of Ray."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support import cluster
from support.launched import run

PROGRAM = Path(__file__).parent / "programs" / "ray_metrics.py"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each gauge, who has it."""
    done = run(
        tmp_path_factory.mktemp("job"),
        [sys.executable, str(PROGRAM)],
        RAY_AUTH_MODE="disabled",
        RAY_DIRECTORY=cluster.make(),
    )
    assert 0 == done.returncode, done.stderr
    return dict(re.findall(r'^ray_gpuprof_(\w+)\{.*?\bof="([^"]*)"', done.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", ["step", "step_seconds", "tokens_per_second", "lost_share"])
def test_a_number_is_a_gauge(exported: dict[str, str], name: str) -> None:
    """Which is about nobody."""
    assert "" == exported[name]


@pytest.mark.parametrize("name", ["bound_share", "slowest_ratio"])
def test_a_gauge_says_whose_it_is(exported: dict[str, str], name: str) -> None:
    """Here the slow rank's."""
    assert "Rank-1" == exported[name]

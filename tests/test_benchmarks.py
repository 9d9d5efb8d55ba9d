"""Each benchmark runs once, over as little as it can measure; `make bench` has the figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import DEADLINE

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
QUICK = {
    "armed_idle": ["--rounds", "1", "--steps", "100"],
    "diff_pairs": ["--pairs", "12", "--steps", "35", "--real", "0"],
    "explain_on_ray": ["--times", "0", "--without", "1", "--steps", "10"],
    "explain_scale": ["--workers", "8", "--steps", "10"],
    "import_time": ["--rounds", "1"],
    "hangs": ["--rounds", "1", "--only", "lock"],
    "integration_cost": ["--rounds", "1", "--scopes", "10"],
    "lines_of_code": ["--times", "1", "--only", "slow fifo"],
    "machine_causes": ["--times", "1", "--only", "no cause"],
    "ledger": ["--rounds", "1", "--seconds", "1", "--spans", "20000"],
    "on_a_card": ["--rounds", "1"],
    "range_cost": [],
    "reading": [
        "--rounds",
        "1",
        "--ranges",
        "40",
        "--calls",
        "100",
        "1000",
        "--real",
        "100",
        "--reports",
        "2",
    ],
    "real_cluster": ["--workers", "1"],
    "recording_cost": ["--rounds", "1", "--starts", "0"],
    "sample_cost": ["--rounds", "1"],
    "sampling_cost": ["--turns", "1", "--rates", "20"],
    "scale": ["--counts", "10"],
    "slow_ranks": ["--simulated=2", "--slow=1", "--looks=4", "--real=0", "--steps=30"],
    "timeline": ["--workers", "8", "--spans", "100000"],
    "timing_merge": ["--trees", "10"],
    "timing_overhead": ["--rounds", "1", "--iterations", "10"],
    "waits_cost": ["--rounds", "1", "--iterations", "10"],
}
NEEDS_NSYS = ("range_cost", "real_cluster")
LONG = (
    "diff_pairs",  # tests/truth has runs that are compared
    "on_a_card",  # there is none here
    "range_cost",
    "armed_idle",
    "sampling_cost",
    "machine_causes",  # tests/integration/test_usage.py has a real run
    "hangs",  # tests/core/cli/test_stacks.py has the same jobs
    "lines_of_code",  # tests/truth has the lines of simulated jobs
    "explain_on_ray",  # the truth suite takes the same path with simulated runs
    "real_cluster",
    "recording_cost",  # two Ray clusters; tests/integration/test_unmodified_ray.py records a job
)
NEEDS_TORCH = ("armed_idle", "on_a_card", "recording_cost", "sampling_cost")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            path.stem,
            marks=[pytest.mark.nsys] * (path.stem in NEEDS_NSYS)
            + [pytest.mark.exhaustive] * (path.stem in LONG)
            + [pytest.mark.torch] * (path.stem in NEEDS_TORCH),
        )
        for path in sorted(BENCHMARKS.glob("*.py"))
    ],
)
def test_a_benchmark_prints_its_table(name: str) -> None:
    """It ends by itself, with 1 where so few samples miss a goal, and says what it has measured."""
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *QUICK[name]]
    done = subprocess.run(
        command, env=dict(os.environ), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "---" in done.stdout, done.stderr  # the line below the heads of the columns

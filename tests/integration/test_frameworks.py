"""The lines of the page on frameworks, run where it says, in frameworks that are made as those are."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuprof._receipt import Receipt
from gpuprof.ray import Profiler
from initializers import Initializer
from launching import config
from report_reader import labels

pytestmark = pytest.mark.nsys

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
LINES = re.findall(r"```python\n(.*?)```", PAGE.split("**NeMo-RL**")[1].split("\n## ")[0], re.DOTALL)
GROUP = "dtensor_policy_worker"
NSIGHT = {"runtime_env": {"nsight": {"t": "nvtx", "s": "none", "cpuctxsw": "none", "o": "'theirs_%p'"}}}
"""What NeMo-RL gives to `ray.remote` where its variables select the worker."""


def train(ray: Any, directory: Path, decorated: Mapping[str, Any], before: str) -> tuple[dict[str, Any], Receipt]:
    """A worker that an initializer makes trains two steps: what the worker is, and the receipt."""
    options, begin, _, add = LINES
    with Profiler(config(directory, worker_groups=[GROUP], steps=[1])) as profiler:
        extra_options = {"runtime_env": {"env_vars": {"RANK": "0"}, "py_executable": sys.executable}, "name": f"{GROUP}-0-0"}
        own = dict(extra_options["runtime_env"])
        group = {"profiler": profiler, "self": SimpleNamespace(name_prefix=GROUP), "extra_options": extra_options}
        exec(options, {**group, "global_rank": 0, "num_gpus": 0})
        assert own == extra_options["runtime_env"]
        initializer = ray.remote(Initializer).options(num_cpus=0, runtime_env=extra_options["runtime_env"]).remote()
        worker = ray.get(initializer.create_worker.remote(begin, before, decorated, **extra_options))
        exec(add, {**group, "worker": worker, "worker_info": [{"global_rank": 0}], "idx": 0})
        for step in range(2):
            with profiler.step(step):
                ray.get(worker.train.remote(step))
        inside = ray.get(worker.identity.remote())
    return inside, profiler.finalize()


@pytest.mark.parametrize("decorated", [{}, NSIGHT], ids=["plain", "wrapped by the framework"])
def test_an_initializer_makes_the_worker(ray: Any, tmp_path: Path, decorated: Mapping[str, Any]) -> None:
    """The worker and not its maker is the one that was planned, behind our profiler and not the framework's."""
    inside, receipt = train(ray, tmp_path, decorated, before=LINES[2])
    assert (True, f"{GROUP}-0") == (inside["wrapped"], inside["name"])
    (row,) = receipt.rows
    assert ("complete", 3) == (row.state, labels(row.file)["forward-1"])


def test_what_replaces_the_command_later_is_named(ray: Any, tmp_path: Path) -> None:
    """Where the framework's profiler takes the place of ours behind our back, the receipt says that it did."""
    (row,) = train(ray, tmp_path, NSIGHT, before="")[1].rows
    assert "missing" == row.state
    assert row.reason.startswith(
        "the worker was not started behind the profiler: something else replaced its command, such as nsight"
    )

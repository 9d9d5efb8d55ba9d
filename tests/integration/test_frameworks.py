"""The page on frameworks: its lines, run in frameworks built like those."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuprof._artifacts.receipt import Receipt
from gpuprof.ray import Profiler
from support.initializers import Initializer
from support.integration_workers import Worker
from support.launching import config
from support.report_reader import labels

pytestmark = pytest.mark.nsys

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks" / "by-hand.md").read_text()


def lines_of(framework: str) -> list[str]:
    """What the page puts into a framework."""
    section = PAGE.split(f"\n## {framework}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


LINES = lines_of("NeMo-RL")
CLASS = "nemo_rl.models.policy.workers.dtensor_policy_worker.DTensorPolicyWorker"
GROUP = "dtensor_policy_worker"
NSIGHT = {
    "runtime_env": {"nsight": {"t": "nvtx", "s": "none", "cpuctxsw": "none", "o": "'theirs_%p'"}}
}
"""What NeMo-RL gives to `ray.remote` where its variables select the worker."""


def train(
    ray: Any, directory: Path, decorated: Mapping[str, Any], before: str
) -> tuple[dict[str, Any], Receipt]:
    """A worker that an initializer makes trains two steps: what the worker is, and the receipt."""
    options, begin, _, add = LINES
    with Profiler(config(directory, worker_groups=[GROUP], steps=[1])) as profiler:
        extra_options = {
            "runtime_env": {"env_vars": {"RANK": "0"}, "py_executable": sys.executable},
            "name": f"{GROUP}-0-0",
        }
        own = dict(extra_options["runtime_env"])
        names = {
            "profiler": profiler,
            "remote_worker_builder": SimpleNamespace(ray_actor_class_fqn=CLASS),
            "extra_options": extra_options,
        }
        names.update(global_rank=0, num_gpus=0)
        exec(options, names)
        assert own == extra_options["runtime_env"]
        initializer = (
            ray.remote(Initializer)
            .options(num_cpus=0, runtime_env=extra_options["runtime_env"])
            .remote()
        )
        worker = ray.get(
            initializer.create_worker.remote(begin, before, decorated, **extra_options)
        )
        exec(add, {**names, "worker": worker, "worker_info": [{"global_rank": 0}], "idx": 0})
        for step in range(2):
            with profiler.step(step):
                ray.get(worker.train.remote(step))
        inside = ray.get(worker.identity.remote())
    return inside, profiler.finalize()


@pytest.mark.parametrize("decorated", [{}, NSIGHT], ids=["plain", "wrapped by the framework"])
def test_an_initializer_makes_the_worker(
    ray: Any, tmp_path: Path, decorated: Mapping[str, Any]
) -> None:
    """The planned worker, and not its maker, is behind our profiler."""
    inside, receipt = train(ray, tmp_path, decorated, before=LINES[2])
    assert inside["wrapped"] is True
    assert f"{GROUP}-0" == inside["name"]
    (row,) = receipt.rows
    assert "complete" == row.state
    assert 3 == labels(row.file)["forward-1"]


def test_what_replaces_the_command_later_is_named(ray: Any, tmp_path: Path) -> None:
    """The receipt reports a command that the framework or its profiler has replaced."""
    replaced = "import sys; options['runtime_env']['py_executable'] = sys.executable"
    (row,) = train(ray, tmp_path, {}, before=replaced)[1].rows
    assert "missing" == row.state
    assert row.reason.startswith(
        "no record that the worker started behind the profiler: another tool replaced its command "
        "(such as a profiler in its runtime_env)"
    )


class RayClass:
    """A class with its options, as verl keeps them together."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._options = {"num_cpus": 0}

    def update_options(self, options: dict[str, Any]) -> None:
        """Add to the options."""
        self._options.update(options)

    def __call__(self, **placement: Any) -> Any:
        """Make a worker."""
        return self._ray.remote(Worker).options(**self._options).remote()


def test_a_reward_model_with_a_pool_of_its_own(ray: Any, tmp_path: Path) -> None:
    """Both pools have a rank 0 of the same class; each has its report."""
    merge, make, _ = lines_of("verl")
    options = {"trace": "nvtx"}
    settings = {
        "global_profiler": {
            "tool": "nsys",
            "steps": [1],
            "save_path": str(tmp_path),
            "global_tool_config": {
                "nsys": {"worker_nsight_options": options, "controller_nsight_options": options}
            },
        },
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True}}},
        "reward_model": {"enable_resource_pool": True, "profiler": {"enable": True}},
    }
    workers = []
    with Profiler(
        settings, system="verl", overrides=["on_error=raise", "print_trees=none"]
    ) as profiler:
        for pool in ({"actor_rollout_ref": None, "critic": None}, {"rm": None}):
            remote_cls = RayClass(ray)
            exec(merge, {"remote_cls": remote_cls, "class_dict": pool})
            names = {
                "profiler": profiler,
                "ray_cls_with_init": remote_cls,
                "cia_name": "WorkerDict",
                "rank": 0,
                "env_vars": {},
            }
            names |= {
                "use_gpu": False,
                "num_gpus": 0,
                "name": f"{len(pool)}WorkerDict_0:0",
                "pg": None,
                "local_rank": 0,
            }
            exec(make, names)
            workers.append(names["worker"])
        for step in range(2):
            with profiler.step(step):
                ray.get([worker.train.remote(step) for worker in workers])
    assert [("WorkerDict-0", "complete"), ("reward_model-0", "complete")] == [
        (row.worker, row.state) for row in profiler.finalize().rows
    ]

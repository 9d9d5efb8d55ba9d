"""Other systems' settings on a real Ray cluster: the reports promised by their pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpuprof
import pytest
import ray as ray_module
from gpuprof.ray import Profiler, running_workers
from support.integration_workers import Worker
from support.launching import start
from support.report_reader import labels
from support.waiting import DEADLINE, wait_until

pytestmark = pytest.mark.nsys


def run(
    settings: Mapping[str, Any],
    system: str,
    group: str,
    steps: range,
    ranks: int = 1,
    *overrides: str,
) -> Any:
    """Train a few steps; the receipt."""
    given = ["on_error=raise", "print_trees=none", *overrides]
    with Profiler(settings, system=system, overrides=given) as profiler:
        actors = [start(profiler, group, rank) for rank in range(ranks)]
        for step in steps:
            with profiler.step(step):
                ray_module.get([actor.train.remote(step) for actor in actors])
    return profiler.finalize()


def steps_in(report: str | None) -> set[int]:
    """The steps whose labels are in a report."""
    return {
        int(label.removeprefix("forward-"))
        for label in labels(report)
        if label.startswith("forward-")
    }


PAGE = Path(__file__).parents[2] / "docs" / "frameworks" / "by-hand.md"
_GROUPS = {"nemo-rl": "dtensor_policy_worker", "rlinf": "ActorGroup", "verl": "actor_rollout_ref"}
_NSYS = {"worker_nsight_options": {"trace": "nvtx", "sample": "none"}}
_SETTINGS: dict[str, dict[str, Any] | None] = {
    "nemo-rl": None,  # its variables
    "rlinf": {
        "cluster": {
            "profiling": {"backend": "nsight", "worker_groups": ["ActorGroup"], "steps": [1, 2]}
        }
    },
    "verl": {
        "global_profiler": {"tool": "nsys", "steps": [1, 2], "global_tool_config": {"nsys": _NSYS}},
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True, "all_ranks": True}}},
    },
}


@pytest.mark.parametrize(
    "system",
    [
        # test_rlinf_records_every_step has its settings, too
        pytest.param(name, marks=pytest.mark.exhaustive if name == "rlinf" else ())
        for name in _SETTINGS
    ],
)
def test_the_program_of_the_page_captures(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """A system's own settings work unchanged, except for the GPU, which is missing here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NRL_NSYS_WORKER_PATTERNS", "*policy*")
    monkeypatch.setenv("NRL_NSYS_PROFILE_STEP_RANGE", "1:3")
    (program,) = re.findall(r"```python\n(import ray\n.*?)```", PAGE.read_text(), re.DOTALL)
    for documented, value in [
        ("rlinf", system),
        ("ActorGroup", _GROUPS[system]),
        ("num_gpus=1", "num_cpus=0"),
    ]:
        assert documented in program
        program = program.replace(documented, value)
    names: dict[str, Any] = {
        "Actor": Worker,
        "config": _SETTINGS[system],
        "world_size": 1,
        "max_steps": 3,
    }
    exec(program, names)
    receipt = names["profiler"].finalize()
    assert receipt.complete is True
    assert {1, 2} == {step for row in receipt.rows for step in steps_in(row.file)}


def test_nemo_rl_training_that_ends_inside_the_range(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With range 3:10 and five steps each worker has a report of steps 3 to 5."""
    variables = {"NRL_NSYS_WORKER_PATTERNS": "*policy*, ", "NRL_NSYS_PROFILE_STEP_RANGE": "3:10"}
    caplog.set_level("INFO")
    receipt = run(
        variables, "nemo-rl", "dtensor_policy_worker", range(1, 6), 2, f"output_dir={tmp_path}"
    )
    assert receipt.complete is True
    assert 2 == len(receipt.rows)
    for row in receipt.rows:
        assert re.fullmatch(r"dtensor_policy_worker_3:10_\d+\.nsys-rep", Path(row.file).name)
        assert {3, 4, 5} == steps_in(row.file)
    line = (
        "Nsight profiling enabled for worker 'dtensor_policy_worker' (matched pattern '*policy*')"
    )
    assert 1 == [record.getMessage() for record in caplog.records].count(line)


def test_rlinf_records_every_step(ray: Any, tmp_path: Path) -> None:
    """Every one of RLinf's steps is recorded, below the logger's directory."""
    logger = {"log_path": str(tmp_path), "experiment_name": "libero"}
    section = {
        "backend": "nsight",
        "worker_groups": ["actorgroup"],
        "steps": [1, 3],
        "options": {"t": "nvtx"},
    }
    section["flags"] = ["python-backtrace"]  # which older releases of nsys do not have at all
    receipt = run(
        {"runner": {"logger": logger}, "cluster": {"profiling": section}},
        "rlinf",
        "ActorGroup",
        range(5),
    )
    assert receipt.complete
    assert [{1}, {3}] == [steps_in(row.file) for row in receipt.rows]
    for row, step in zip(receipt.rows, (1, 3), strict=True):
        assert re.fullmatch(
            rf"rlinf_profile_ActorGroup_0_\d+\.step-{step}\.nsys-rep", Path(row.file).name
        )
        assert Path(row.file).is_relative_to(tmp_path / "libero" / "profiling")


def test_verl_with_its_finish_hook(ray: Any, tmp_path: Path) -> None:
    """Reports are numbered per process; the hook runs once on each selected rank."""
    told = " ".join(f'"$VERL_PROFILE_{name}"' for name in ("TOOL", "RANK", "ROLE", "PID"))
    reports = '$(ls "$VERL_PROFILE_SAVE_PATH" | grep -c nsys-rep)'
    hook = f"echo {told} {reports} >> {tmp_path}/hook-$VERL_PROFILE_RANK; exit 3"
    options = {
        "trace": "nvtx",
        "capture-range": "cudaProfilerApi",
        "capture-range-end": None,
        "kill": "none",
    }
    settings = {
        "global_profiler": {
            "tool": "nsys",
            "steps": [1, 3],
            "save_path": str(tmp_path / "out"),
            "finish_hook_cmd": hook,
            "finish_hook_ranks": [0, 1],
            "global_tool_config": {"nsys": {"worker_nsight_options": options}},
        },
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True}}},
    }
    receipt = run(settings, "verl", "actor_rollout_ref", range(1, 5), 2)
    assert receipt.complete
    assert [1, 2] == [
        int(re.fullmatch(r"worker_process_\d+\.(\d)\.nsys-rep", Path(row.file).name)[1])
        for row in receipt.rows
    ]
    assert [{1}, {3}] == [steps_in(row.file) for row in receipt.rows]
    pid = re.search(r"worker_process_(\d+)", receipt.rows[0].file)[1]
    assert f"nsys 0 actor_rollout_ref {pid} 2\n" == wait_for(tmp_path / "hook-0")
    assert wait_for(tmp_path / "hook-1").startswith("nsys 1 actor_rollout_ref ")


def test_the_workers_of_a_running_cluster(ray: Any) -> None:
    """Named actors are groups and ranks on their nodes; others go by their class."""
    named = [
        ray.remote(Worker).options(name=f"ActorGroup:{rank}", num_cpus=0).remote()
        for rank in range(2)
    ]
    other = ray.remote(Worker).options(num_cpus=0).remote()
    ray.get([actor.identity.remote() for actor in [*named, other]])
    config = {"backend": "nsight", "worker_groups": ["ActorGroup"], "output_dir": "/out"}
    rows = {row.worker.name: row for row in gpuprof.plan(config, running_workers()).rows}
    for actor in [*named, other]:
        ray.kill(actor)
    assert [True, True, False] == [
        rows[name].profiled for name in ("ActorGroup-0", "ActorGroup-1", "Worker-0")
    ]
    assert "{node}" not in rows["ActorGroup-0"].files[1]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("plan", "--workers", "ray"), "--workers: 'ray'"),
        (("doctor", "--ray"), "--address: 'auto'"),
    ],
)
def test_no_running_cluster(words: tuple[str, ...], key: str) -> None:
    """A command that asks for one says which of its words has."""
    command = [sys.executable, "-m", "gpuprof", *words]
    environment = {**os.environ, "RAY_ADDRESS": "no-address"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    said = f"gpuprof: {key}: cannot connect to a Ray cluster: Invalid address format: no-address\n"
    assert 2 == done.returncode
    assert done.stderr.endswith(said)
    assert "Traceback" not in done.stderr


def wait_for(file: Path) -> str:
    """What a file holds, once it is there: the hook runs beside the worker."""
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), f"written: {file}")
    return file.read_text()

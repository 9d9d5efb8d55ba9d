"""Jobs without a driver log their metrics from one rank."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.launched import GPUPROF, run

ALONE = """
import json, time, gpuprof

step, metrics = 0, {}
while "gpuprof/bound_by" not in metrics:
    with gpuprof.step(step, tokens=100), gpuprof.timer("forward"):
        time.sleep(0.2)
    metrics = gpuprof.step_metrics()
    step += 1
print(json.dumps(metrics))
"""
RANKS = """
import json, time, gpuprof, torch
from torch import distributed

distributed.init_process_group("gloo")
rank = distributed.get_rank()
step, metrics, known = 0, {}, torch.zeros(1)
while not known:
    with gpuprof.step(step, tokens=100):
        with gpuprof.timer("forward"):
            time.sleep(0.02 if rank == 0 else 0.4)
        known = torch.tensor(float("gpuprof/bound_by" in metrics))
        distributed.all_reduce(known, distributed.ReduceOp.MAX)
    if rank == 0:
        metrics = gpuprof.step_metrics()
    step += 1
if rank == 0:
    print(json.dumps(metrics))
distributed.destroy_process_group()
"""
TORCHRUN = ["torchrun", "--log-dir", "log", "--nproc-per-node", "2"]


def logged(directory: Path, program: str, *words: str) -> dict[str, Any]:
    """The metrics that a job prints once it knows who bounds its steps, without their prefix."""
    (directory / "train.py").write_text(program)
    done = run(directory, [*GPUPROF, "--set", "backend=none", "--", *words, "train.py"])
    assert 0 == done.returncode, done.stderr
    metrics = json.loads(done.stdout)
    return {name.removeprefix("gpuprof/"): value for name, value in metrics.items()}


NAMES = {
    "step", "step_seconds", "tokens_per_second", "recorded_step", "bound_by", "bound_share",
    "lost_share", "waits", "waits_share",
}  # fmt: skip


def test_a_single_process_bounds_its_steps(tmp_path: Path) -> None:
    """Its rate is that of the last step, and the ledgers' step is no later."""
    metrics = logged(tmp_path, ALONE, sys.executable)
    assert metrics.keys() == NAMES
    assert "Program-0" == metrics["bound_by"]
    assert pytest.approx(100) == metrics["tokens_per_second"] * metrics["step_seconds"]
    assert metrics["recorded_step"] <= metrics["step"]


@pytest.mark.torch
def test_rank_0_of_torchrun_knows_the_slow_rank(tmp_path: Path) -> None:
    """And that it waits for it itself."""
    metrics = logged(tmp_path, RANKS, *TORCHRUN)
    assert metrics.keys() == NAMES | {"slowest_rank", "slowest_ratio"}
    assert ("Worker-1", "Worker-1") == (metrics["bound_by"], metrics["slowest_rank"])
    assert metrics["slowest_ratio"] > 3
    assert 0.2 < metrics["lost_share"] < 0.6

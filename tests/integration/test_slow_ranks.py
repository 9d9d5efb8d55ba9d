"""Jobs in which a rank becomes slow while they run: it is captured, and the receipt says why."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof.ray import Profiler
from support.launched import GPUPROF, environment
from support.launching import config
from support.waiting import DEADLINE, wait_until

SAYS = "longer than its 3 peers in forward"


class Rank:
    """A worker that is slow if it is told so."""

    def train(self, slow: bool) -> None:
        """Take a step."""
        with gpuprof.timer("forward"):
            time.sleep(0.15 if slow else 0.05)


@pytest.mark.nsys
def test_a_slow_worker_on_ray_captures_itself(ray: Any, tmp_path: Path) -> None:
    """Beside a healthy one, and no other; the receipt has both reports and the reason."""
    with Profiler(
        config(tmp_path, worker_groups=["Rank"], steps=[], armed=True, capture_slow=1)
    ) as profiler:
        actor = ray.remote(Rank)
        ranks = [
            profiler.start(
                lambda options: actor.options(**options).remote(),
                group="Rank", rank=rank, num_cpus=0,
            )
            for rank in range(4)
        ]  # fmt: skip
        step = 0

        def train() -> bool:
            nonlocal step
            with profiler.step(step):
                ray.get([one.train.remote(rank == 2 and step >= 20)
                         for rank, one in enumerate(ranks)])  # fmt: skip
            step += 1
            return len(profiler._windows.opened.get("Rank-2", ())) > 0  # type: ignore[union-attr]

        wait_until(train, "captured: Rank-2")
    receipt = profiler.finalize()
    (says,) = receipt.faults
    assert says.startswith("Rank-2 took ")
    assert SAYS in says
    assert receipt.complete
    captured = {row.worker for row in receipt.rows}
    assert (2, True) == (len(captured), "Rank-2" in captured)


RANK = """
import os, sys, time, gpuprof
from pathlib import Path
found = Path(sys.argv[1], "slow-1.json")
for number in range(100_000):
    with gpuprof.step(number), gpuprof.timer("forward"):
        time.sleep(0.15 if os.environ["RANK"] == "2" and number >= 20 else 0.05)
    if found.exists():
        break
"""


def test_a_slow_rank_without_a_profiler_is_named(tmp_path: Path) -> None:
    """While the job runs, in a file that the job here waits for."""
    (tmp_path / "train.py").write_text(RANK)
    directory = tmp_path / "gpuprof-output" / "run"
    command = [*GPUPROF, "--set", "backend=none", "--set", "capture_slow=1", "--"]
    ranks = [
        subprocess.Popen(
            [*command, sys.executable, "train.py", str(directory)],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
            env=environment(GPUPROF_RUN="run", TORCHELASTIC_RUN_ID="run", RANK=str(rank),
                            WORLD_SIZE="4", LOCAL_WORLD_SIZE="4"),
        )
        for rank in range(4)
    ]  # fmt: skip
    assert [0, 0, 0, 0] == [rank.wait(DEADLINE) for rank in ranks]
    says = json.loads((directory / "slow-1.json").read_text())["says"]
    assert says.startswith("Worker-2 took ")
    assert SAYS in says

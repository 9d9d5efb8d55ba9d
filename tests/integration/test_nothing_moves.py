"""`gpuprof stacks` of real jobs that hang."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cluster import address, several_nodes
from support.launched import GPUPROF, started
from support.waiting import wait_until

TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--nproc-per-node", "3"]
RANK = """
import pathlib, queue
import torch, torch.distributed as dist

def train(rank):
    for step in range(5):
        if step == 3:
            pathlib.Path(f"stuck-{rank}").touch()
            if rank == 0:
                print("ready", flush=True)
            if rank == 2:
                queue.Queue().get()  # while the others go on
        dist.all_reduce(torch.ones(2))

torch.set_num_threads(1)
dist.init_process_group("gloo")
train(dist.get_rank())
"""
ACTORS = """
import ray

@ray.remote(num_cpus=0)
class Ping:
    def meet(self, pong):
        self.pong = pong
    def call(self):
        return ray.get(self.pong.call.remote())

@ray.remote(num_cpus=0)
class Pong:
    def meet(self, pong):
        self.pong = pong
    def call(self):
        return ray.get(self.pong.meet.remote(None))

ping, pong = Ping.remote(), Pong.remote()
ray.get([ping.meet.remote(pong), pong.meet.remote(ping)])
print("ready", flush=True)
ray.get(ping.call.remote())
"""


TWO_NODES = """
import os, queue, sys, ray
ray.init(address=sys.argv[1])

@ray.remote(num_cpus=0)
class Near:
    def call(self, far):
        return ray.get(far.call.remote())

@ray.remote(num_cpus=0, resources={"node1": 1})
class Far:
    def call(self):
        return queue.Queue().get()  # far
    def ready(self):
        return os.getpid()

far = [Far.remote(), Far.remote()]
pid, _ = ray.get([actor.ready.remote() for actor in far])
open("pid", "w").write(str(pid))
print("ready", flush=True)
try:
    ray.get(Near.remote().call.remote(far[0]))
finally:
    queue.Queue().get()
"""


def asked(run: Path) -> dict[str, Any]:
    """What `gpuprof stacks` says."""
    command = [sys.executable, "-m", "gpuprof", "stacks", str(run), "--json", "--again", "1"]
    answer: dict[str, Any] = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    )
    return answer


def named(run: Path, group: str) -> tuple[str, ...]:
    """The states of a group's processes."""
    return tuple(p["state"] for p in asked(run)["processes"] if p["name"].startswith(group))


def test_two_actors_that_call_each_other_are_a_deadlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are named, and that the driver waits for them."""
    (tmp_path / "job.py").write_text(ACTORS)
    monkeypatch.setenv("RAY_ADDRESS", address())
    with started(tmp_path, [*GPUPROF, "--", sys.executable, "job.py"]) as (process, _):
        (run,) = tmp_path.glob("gpuprof-output/*")
        try:
            wait_until(lambda: asked(run)["waits"], "they wait")
            waits = asked(run)["waits"]
        finally:
            process.terminate()
    names = [re.sub(r" \([^)]*\)", "", wait) for wait in waits]
    assert [
        "deadlock: Ping-0 waits for Pong-0 waits for Ping-0",
        "Runner waits for Ping-0: has not moved",
    ] == names


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_nodes_that_share_no_directory_are_asked_by_connection(tmp_path: Path) -> None:
    """Their processes answer; one that is stopped, and then a node that dies, are named."""
    (tmp_path / "job.py").write_text(TWO_NODES)
    line = next(n for n, text in enumerate(TWO_NODES.splitlines(), 1) if "# far" in text)
    output = tmp_path / "gpuprof-output"
    output.mkdir()
    with several_nodes(2, unshared=output) as cluster:
        command = [*GPUPROF, "--", sys.executable, "job.py", cluster.address]
        with started(tmp_path, command) as (process, _):
            (run,) = output.iterdir()
            try:
                wait_until(lambda: asked(run)["waits"], "they wait")
                waits, states = asked(run)["waits"], []
                assert [] == list(run.rglob("Far-*"))
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGSTOP)
                states.append(named(run, "Far"))
                cluster.remove_node(*cluster.worker_nodes, allow_graceful=False)
                wait_until(lambda: ("lost", "lost") == named(run, "Far"), "its node has died")
            finally:
                process.terminate()
    place = f"queue.get < Far.call at job.py:{line}"
    assert [True, "has not moved"] == [
        waits[0].startswith(f"Near-0 and Runner wait for Far-0 ({place}"),
        waits[0].rpartition(": ")[2],
    ]
    assert [("stopped", "answered")] == states


@pytest.mark.exhaustive
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_the_watchdog_asks_all_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute after anything has ended on any of them; its file says who waits for whom."""
    monkeypatch.setenv("GPUPROF_WATCHDOG", "60")
    (tmp_path / "job.py").write_text(TWO_NODES)
    output = tmp_path / "gpuprof-output"
    output.mkdir()
    with several_nodes(2, unshared=output) as cluster:
        command = [*GPUPROF, "--", sys.executable, "job.py", cluster.address]
        with started(tmp_path, command) as (process, _):
            (run,) = output.iterdir()
            stall = run / "stall-1.txt"
            try:
                wait_until(lambda: stall.exists() and "Far" in stall.read_text(), "an alarm")
            finally:
                process.terminate()
    assert stall.read_text().startswith("Near-0 and Runner wait for Far-0 (queue.get < Far.call")


@pytest.mark.torch
def test_the_rank_that_skips_a_collective_is_named(tmp_path: Path) -> None:
    """With the collective, and what it does instead."""
    (tmp_path / "train.py").write_text(RANK)
    line = next(n for n, text in enumerate(RANK.splitlines(), 1) if "while the others" in text)
    with started(tmp_path, [*GPUPROF, "--", *TORCHRUN, "train.py"]) as (process, _):
        try:
            wait_until(lambda: len(list(tmp_path.glob("stuck-*"))) == 3, "all ranks are stuck")
            (run,) = tmp_path.glob("gpuprof-output/*")
            wait_until(
                lambda: any("all_reduce #" in wait for wait in asked(run)["waits"]), "they wait"
            )
            (wait,) = asked(run)["waits"]
        finally:
            process.terminate()  # torchrun ends its ranks, which have process groups of their own
    assert wait.startswith("2 of 3 (ranks 0,1) are in all_reduce #4 of their group")
    assert "; rank 2 (Worker-2) is in queue.get < train" in wait
    assert f"at train.py:{line}" in wait
    assert wait.endswith("; its last one was #3")

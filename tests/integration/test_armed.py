"""Windows ordered while the job runs, on Ray and under `gpuprof run`, with a real nsys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from gpuprof.ray import Profiler
from support.launching import config, start
from support.report_reader import labels
from support.waiting import wait_until

pytestmark = pytest.mark.nsys
CAPTURE = [sys.executable, "-m", "gpuprof", "capture"]


def capture(run: str, *arguments: str) -> None:
    """Fire, from another process as from another shell."""
    subprocess.run([*CAPTURE, run, *arguments], check=True, stdout=subprocess.DEVNULL)


def test_ray_workers_capture_what_they_are_told(ray: Any, tmp_path: Path) -> None:
    """An order captures the next two steps on one rank, then a given step on both."""
    with Profiler(config(tmp_path, steps=[], armed=True)) as profiler:
        assert profiler.directory is not None
        actors = [start(profiler, "ActorGroup", rank) for rank in range(2)]
        step = 0

        def train_until(fired: int) -> None:

            def train() -> bool:
                nonlocal step
                with profiler.step(step):
                    ray.get([actor.train.remote(step) for actor in actors])
                step += 1
                return len(profiler._windows.opened.get("ActorGroup-1", ())) >= fired  # type: ignore[union-attr]

            wait_until(train, f"opened: window {fired}")

        capture(profiler.directory, "--steps", "next:2", "--ranks", "1", "--groups", "actor*")
        train_until(2)
        first = step - 2
        named = step + 5000
        capture(profiler.directory, "--steps", str(named))
        wait_until(lambda: profiler._firing._watch.waiting, "read: the order")  # type: ignore[union-attr]
        step = named
        train_until(3)
    receipt = profiler.finalize()
    assert receipt.complete
    with pytest.raises(subprocess.CalledProcessError):  # it has ended
        capture(profiler.directory, "--steps", "next:1")
    expected = [
        ("ActorGroup-0", named),
        ("ActorGroup-1", first),
        ("ActorGroup-1", first + 1),
        ("ActorGroup-1", named),
    ]
    assert [(worker, f"step-{number}") for worker, number in expected] == [
        (row.worker, row.window) for row in receipt.rows
    ]
    for row, (_, number) in zip(receipt.rows, expected, strict=True):
        assert 3 == labels(row.file)[f"forward-{number}"]
    files = [*tmp_path.rglob("*.start-1.json"), *tmp_path.rglob("Runner.json")]
    # the steps of both orders, on each worker and on the driver
    assert [3, 3, 3] == [json.loads(file.read_text())["steps_left_out"] for file in files]


def test_nothing_is_missing_where_nothing_was_told(ray: Any, tmp_path: Path) -> None:
    """A receipt without rows is complete."""
    with Profiler(config(tmp_path, steps=[], armed=True)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(0):
            ray.get(actor.train.remote(0))
    assert ((), True) == ((receipt := profiler.finalize()).rows, receipt.complete)


def test_orders_that_come_to_nothing(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Orders that come too late, match no rank or never fire are reported."""
    with (
        caplog.at_level("INFO", "gpuprof"),
        Profiler(config(tmp_path, steps=[], armed=True)) as profiler,
    ):
        assert profiler.directory is not None
        actor = start(profiler, "ActorGroup", 0)
        for words in (("--steps", "1,70"), ("--steps", "2", "--ranks", "9")):
            capture(profiler.directory, *words)
        wait_until(lambda: len(profiler._firing._watch.waiting) == 2, "read: both orders")  # type: ignore[attr-defined]
        with profiler.step(5):
            ray.get(actor.train.remote(5))
    for said in (
        "gpuprof capture: step-70 on ActorGroup-0",
        "gpuprof capture: step-1 on ActorGroup-0: too late, the run is at step 5",
        "gpuprof capture: an order's groups and ranks match none of ActorGroup-0",
    ):
        assert 1 == caplog.messages.count(said)
    never = "none of its steps ran; the run's were 5 to 5"
    expected = tuple(f"gpuprof capture: step-{step} on ActorGroup-0: {never}" for step in (1, 70))
    assert expected == profiler.finalize().faults


TWO_RANKS = """
import os, pathlib, sys, time, gpuprof
rank = int(os.environ["RANK"])
stop, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]).parent
mine, other = (os.open(output / f"steps-of-{which}", os.O_RDWR | os.O_CREAT)
               for which in (rank, 1 - rank))
number = 0
while not stop.exists():
    os.pwrite(mine, number.to_bytes(8, "big"), 0)
    while number > int.from_bytes(os.pread(other, 8, 0), "big") + 5 and not stop.exists():
        time.sleep(0.001)  # not in step, but never far apart, as collectives keep ranks
    with gpuprof.step(number), gpuprof.timer(f"train-{number}"):
        time.sleep(0.002)
    number += 1
    if number == 500:  # steps take as long as they will: `next:2` relies on their pace
        (output / f"running-{rank}").touch()
"""


@pytest.mark.torch
def test_ranks_of_torchrun_capture_the_same_steps(tmp_path: Path) -> None:
    """`next:2` captures the same two steps on ranks that are out of step."""
    script, stop = tmp_path / "train.py", tmp_path / "stop"
    script.write_text(TWO_RANKS)
    settings = ["backend=nsight", "armed=true", "steps=[]", "nsight.preset=light"]
    wrapper = [
        "-m",
        "gpuprof",
        "run",
        *(word for setting in settings for word in ("--set", setting)),
        "--",
    ]
    command = [
        str(Path(sys.executable).with_name("torchrun")),
        "--log-dir",  # which it else makes in the temporary directory, and leaves
        str(tmp_path / "log"),
        "--nproc-per-node",
        "2",
        *wrapper,
        sys.executable,
        str(script),
        str(stop),
    ]
    environment = {**os.environ, "GPUPROF_RUN": "armed"}
    directory = tmp_path / "gpuprof-output" / "armed"
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stderr is not None
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(job.stderr or ()))
        reader.start()
        try:
            wait_until(
                lambda: all((tmp_path / f"running-{rank}").exists() for rank in range(2)),
                "running: both ranks",
            )
            capture(str(directory), "--steps", "next:2")
            sessions = "*/Worker-?.start-1.json"
            wait_until(
                lambda: [2, 2] == [closed(file) for file in sorted(directory.glob(sessions))],
                "closed: two windows of each rank",
            )
        finally:
            stop.touch()
            reader.join()
    assert 0 == job.returncode, "".join(said)
    reports = {file.name: labels(str(file)) for file in directory.glob("*/*.nsys-rep")}
    steps = sorted(
        {name.partition("step-")[2].removesuffix(".nsys-rep") for name in reports}, key=int
    )
    assert 2 == len(steps)
    assert int(steps[0]) + 1 == int(steps[1])
    assert {
        f"Worker-{rank}.step-{step}.nsys-rep": {f"train-{step}": 1}
        for rank in range(2)
        for step in steps
    } == reports


def closed(file: Path) -> int:
    """How many windows a session has closed."""
    return sum(window["closed"] is not None for window in json.loads(file.read_text())["windows"])

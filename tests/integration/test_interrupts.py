"""Ctrl-C on a training driver: the first finishes the run, a second quits at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cluster import make
from support.waiting import DEADLINE

pytestmark = [pytest.mark.nsys, pytest.mark.fault]

DRIVER = """
import os, signal, sys
# a shell starts background jobs with Ctrl-C ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
import ray
from gpuprof.ray import Profiler
from support.launching import config, start
from support.patient_ray import patient_start

output, temporary, steps = sys.argv[1:]
environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
with patient_start():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=temporary,
             _node_ip_address="127.0.0.1",
             runtime_env=environment)
with Profiler(config(output, steps=eval(steps), on_error="disable")) as profiler:
    actor = start(profiler, "ActorGroup", 0)
    with profiler.step(0):
        ray.get(actor.train.remote(0))
        print("inside", flush=True)
        ray.get(actor.work_until.remote(output + "/never"))
"""


@contextmanager
def driver(directory: Path, steps: str) -> Iterator[subprocess.Popen[str]]:
    """The program above, in a process group of its own as a shell starts it, inside its step."""
    temporary = make()
    program = directory / "driver.py"
    program.write_text(DRIVER)
    command = [sys.executable, str(program), str(directory / "output"), temporary, steps]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        read_until(process, "inside")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def read_until(process: subprocess.Popen[str], word: str) -> None:
    """Read what it says up to a line with `word`."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if word in line:
            return
    raise AssertionError("".join(said))


def test_ctrl_c_once_finishes(tmp_path: Path) -> None:
    """Ctrl-C closes the open window, completes its report and ends the program."""
    with driver(tmp_path, "[0]") as process:
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=DEADLINE)[0]
    assert "the run is being finished; Ctrl-C again leaves at once" in said
    assert "1 of 1 report complete" in said
    assert "KeyboardInterrupt" in said.splitlines()[-1]
    assert 1 == process.returncode  # as of any interrupted program that uses Ray
    assert 1 == len(list(tmp_path.glob("output/*/*/*.nsys-rep")))
    assert 1 == len(list(tmp_path.glob("output/*/manifest.json")))


def test_ctrl_c_twice_leaves(tmp_path: Path) -> None:
    """A second Ctrl-C waits for no worker and names the missing report."""
    with driver(tmp_path, "None") as process:
        os.killpg(process.pid, signal.SIGINT)
        read_until(process, "Ctrl-C again leaves at once")
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=DEADLINE)[0]
    assert "quit immediately; reports that may be incomplete: ActorGroup-0" in said
    assert str(tmp_path) in said
    assert " complete, " not in said
    assert 1 == process.returncode  # as of any interrupted program that uses Ray

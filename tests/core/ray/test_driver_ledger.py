"""The driver's ledger, without a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import gpuprof
from gpuprof._artifacts.ledger import read
from gpuprof.ray import Profiler
from support.waiting import DEADLINE, wait_until

PROGRAM = """
import itertools, sys, time
from gpuprof.ray import Profiler

profiler = Profiler({"backend": "none", "worker_groups": "all", "output_dir": sys.argv[1]})
for number in itertools.count():
    with profiler.step(number):
        time.sleep(0.05)
    print(time.perf_counter_ns(), flush=True)
"""


def test_a_step_inside_itself_is_one_step(tmp_path: Path) -> None:
    """A framework and the user's code both mark it; the next ones are steps as well."""
    settings = {"backend": "none", "worker_groups": "all", "output_dir": str(tmp_path)}
    with Profiler(settings) as profiler:
        for number in range(2):
            with profiler.step(number), profiler.step(number):
                pass
            with profiler.step(number + 10), profiler.step(number + 20):
                pass
    (path,) = tmp_path.glob("*/*/Runner.ledger")
    assert [0, 10, 1, 11] == [step.number for step in read(path).steps()]


def test_the_driver_records_samples_and_attributes_of_its_steps(tmp_path: Path) -> None:
    """It has no session as workers have."""
    settings = {"backend": "none", "worker_groups": "all", "output_dir": str(tmp_path)}
    with (
        Profiler(settings) as profiler,
        profiler.step(3, tokens=512),
        gpuprof.sample("a", phase="trained"),
    ):
        pass
    (path,) = tmp_path.glob("*/*/Runner.ledger")
    ledger = read(path)
    assert {"a"} == set(ledger.sample_ids.values())
    ((name, step, _, tokens),) = ledger.attributes.tolist()
    assert ("tokens", 3, 512.0) == (ledger.words[name], step, tokens)


def test_a_run_leaves_no_thread(tmp_path: Path) -> None:
    """A process may have many runs, one after the other."""
    settings = {"backend": "none", "worker_groups": "all", "output_dir": str(tmp_path)}
    before = set(threading.enumerate())
    with Profiler(settings) as profiler, profiler.step(0):
        started = set(threading.enumerate()) - before
    names = {thread.name for thread in started}
    assert {"gpuprof-control", "gpuprof-dump"} == names - {"gpuprof-stacks"}
    wait_until(lambda: not any(thread.is_alive() for thread in started), "ended: its thread")


def test_a_killed_driver_loses_at_most_five_seconds(tmp_path: Path) -> None:
    """Its steps are read up to then, and the run it was in is still open."""
    driver = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    try:
        lines = [driver.stdout.readline() for _ in range(80)]
    finally:
        driver.send_signal(signal.SIGKILL)
        rest, _ = driver.communicate(timeout=DEADLINE)
    last = int([*lines, *rest.splitlines(keepends=True)][-1])
    (path,) = tmp_path.glob("*/*/Runner.ledger")
    ledger = read(path)
    assert not ledger.ended
    assert last - ledger.last < 5 * 10**9
    assert list(range(len(ledger.steps()))) == [step.number for step in ledger.steps()]
    assert ["main_loop"] == [ledger.places[place].path for place in ledger.open["place"]]


FULL = """
import resource, sys
from gpuprof.ray import Profiler

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # a write fails as on a full disk
config = {"backend": "none", "worker_groups": "all", "output_dir": sys.argv[1]}
with Profiler({**config, **eval(sys.argv[2])}) as profiler:
    print(profiler.worker_options(group="A", rank=0, num_cpus=1))
    with profiler.step(0):
        print(profiler.directory)
"""


def drive_full(directory: Path, **keys: str) -> subprocess.CompletedProcess[str]:
    """A driver that cannot write a file."""
    command = [sys.executable, "-c", FULL, str(directory), repr(keys)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)


def test_a_driver_that_has_no_room_to_begin_a_run(tmp_path: Path) -> None:
    """The job goes on without profiling, with one sentence."""
    done = drive_full(tmp_path)
    assert "{'num_cpus': 1}\nNone\n" == done.stdout, done.stderr
    fault = f"output_dir: '{tmp_path}' cannot be written: File too large"
    remedy = "set output_dir or GPUPROF_OUTPUT_DIR to another directory, or make room"
    said = f"{fault}; {remedy}; the job goes on without profiling"
    assert said in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def test_a_driver_that_is_to_raise_does(tmp_path: Path) -> None:
    """With `on_error: raise` a job does not run without its profiler."""
    assert "gpuprof._artifacts.runs.NoPlace: " in drive_full(tmp_path, on_error="raise").stderr

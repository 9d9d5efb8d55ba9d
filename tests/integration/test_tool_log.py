"""What nsys prints, and what the job prints: never on the same output."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof.ray import Profiler
from support.launched import GPUPROF, NSIGHT, run
from support.launching import config, start

pytestmark = pytest.mark.nsys

JOB = """
import os, gpuprof
for n in range(3):
    with gpuprof.step(n), gpuprof.timer("work"):
        os.write(1, f"out {n} ".encode())
        os.write(2, f"err {n}\\r".encode())
os.write(2, f"{os.readlink('/proc/self/fd/1')} {os.readlink('/proc/self/fd/2')}\\n".encode())
"""
KILLED = """
import os, signal, gpuprof
with gpuprof.step(1), gpuprof.timer("work"):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = open(f"/proc/{pid}/environ").read()
            command = open(f"/proc/{pid}/cmdline").read()
            if f"TMPDIR={os.environ['TMPDIR']}/gpuprof-" in variables and "-agent" in command:
                os.kill(int(pid), signal.SIGKILL)
        except (OSError, ValueError):
            pass
    os.kill(os.getpid(), signal.SIGKILL)
"""
STEPS = ["--set", "steps=[1]", "--set", "print_trees=none"]


def outputs(directory: Path, *wrapper: str) -> tuple[bytes, bytes]:
    """What the job writes to the files that are its outputs, without gpuprof's own lines."""
    (directory / "job.py").write_text(JOB)
    into = ["/bin/sh", "-c", 'exec "$@" >out 2>err', "sh"]
    assert 0 == run(directory, [*into, *wrapper, sys.executable, "job.py"]).returncode
    error = re.sub(
        rb"^\[\d{4}-\d\d-\d\d [^\n]*\n", b"", (directory / "err").read_bytes(), flags=re.MULTILINE
    )
    return (directory / "out").read_bytes(), error


@pytest.mark.parametrize("gate", [pytest.param("nvtx", marks=pytest.mark.exhaustive), "session"])
def test_the_jobs_output_is_what_it_is_without_a_profiler(tmp_path: Path, gate: str) -> None:
    """Byte for byte, on the same files; nsys's words are in a log beside the report."""
    plain = outputs(tmp_path)
    profiled = outputs(tmp_path, *GPUPROF, *NSIGHT, *STEPS, "--set", f"nsight.gate={gate}", "--")
    assert plain == profiled
    (log,) = tmp_path.glob("gpuprof-output/*/*/Program-0.start-1.log")
    assert "Generated:" in log.read_text()


@pytest.mark.fault
def test_the_receipt_quotes_an_nsys_that_was_killed(tmp_path: Path) -> None:
    """Its last words on an agent that is gone, and the log that has the others."""
    (tmp_path / "job.py").write_text(KILLED)
    words = [*GPUPROF, *NSIGHT, *STEPS, "--", sys.executable, "job.py"]
    done = run(tmp_path, words, TMPDIR=str(tmp_path))
    said = " ".join(done.stderr.split())
    log = re.escape(f"{os.uname().nodename}/Program-0.start-1.log")
    quoted = rf'last lines of its log {log}: ".*Connection to (the )?Agent lost'
    assert re.search(quoted, said), said


def test_on_ray_the_log_comes_home(ray: Any, tmp_path: Path) -> None:
    """From the staging directory, as reports do; the manifest says whose it is."""
    places = {"output_dir": str(tmp_path / "home"), "staging_dir": str(tmp_path / "staging")}
    with Profiler({**config(tmp_path, steps=[1]), **places}) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(3):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    assert profiler.finalize().complete
    (log,) = (tmp_path / "home").glob("*/*/ActorGroup-0.start-1.log")
    assert "Generating '" in log.read_text()
    manifest = json.loads((log.parents[1] / "manifest.json").read_text())
    (entry,) = [file for file in manifest["files"] if file["file"] == str(log)]
    assert ("ActorGroup", 0) == (entry["group"], entry["rank"])
    assert [] == list((tmp_path / "staging").glob("*/*/*.log"))

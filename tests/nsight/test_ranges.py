"""Ranges in a real report: nested, out of order, across threads and tasks. nsys runs, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from report_reader import labels

pytestmark = pytest.mark.nsys

PROGRAM = """
import threading
from gpuprof import Window, Worker
from gpuprof_nsight._ranges import Ranges
from gpuprof_nsight._nvtx_gate import NvtxGate

def open_range(name, step, crosses_tasks):
    return Ranges("ActorGroup", step).open(name, crosses_tasks)

def hold(name):
    with open_range(name, 3, False):
        yield

here = Worker("run", "ActorGroup", 0, "node", "1", "/out"), Window(1, 3, 4)
gate = NvtxGate()
with open_range("before", 3, False):
    pass
gate.open(*here)
with open_range("outer", 3, False), open_range("inner", 3, False):
    pass
first, second = hold("first"), hold("second")
next(first), next(second)
first.close()                       # out of order: must not pop `second`
with open_range("between", 3, False):
    pass
second.close()
crossing = open_range("crossing", 3, True)
crossing.__enter__()
thread = threading.Thread(target=crossing.__exit__, args=(None, None, None))
thread.start(), thread.join()
try:
    with open_range("raises", None, False):
        raise KeyError
except KeyError:
    pass
gate.close(*here)
gate.close(*here)                        # once is enough
with open_range("after", 3, False):
    pass
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's report."""
    directory = tmp_path_factory.mktemp("ranges")
    options = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=nvtx", "--nvtx-capture=gate@gpuprof-gate"]
    options += ["--capture-range-end=repeat:1", "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "-o", str(directory / "report")]
    command = ["nsys", "profile", *options, sys.executable, "-c", PROGRAM]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return directory / "report.nsys-rep"


def test_what_lies_inside_the_gate_is_recorded(report: Path) -> None:
    """Each range once, whatever the order in which it ended; none from before or after the gate."""
    names = ["gate", "outer", "inner", "first", "second", "between", "crossing", "raises"]
    assert Counter(names) == labels(str(report))


def test_without_a_tool_ranges_cost_nothing_and_do_nothing() -> None:
    """The dummy domain of nvtx is kept where nobody listens."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)

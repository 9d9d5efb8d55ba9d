"""Ranges in a real report: nested, out of order, across threads and tasks, without a GPU."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.patient_nsys import profile
from support.report_reader import labels

pytestmark = pytest.mark.nsys

DESCRIBED = """
    SELECT strings.value, named.text, event.color, event.int64Value FROM NVTX_EVENTS AS event
    JOIN StringIds AS strings ON strings.id = event.textId
    LEFT JOIN NVTX_EVENTS AS named
    ON named.eventType = 33 AND named.category = event.category AND named.domainId = event.domainId
    WHERE event.eventType IN (59, 60)
"""

TIMES = """
    SELECT strings.value, event.start, event.end FROM NVTX_EVENTS AS event
    JOIN StringIds AS strings ON strings.id = event.textId WHERE event.eventType IN (59, 60)
"""

PROGRAM = """
import threading
from gpuprof.backend import Window, Worker
from gpuprof_nsight._nvtx.ranges import make
from gpuprof_nsight._gates.nvtx import NvtxGate

def open_range(name, step, crosses_tasks):
    return make("ActorGroup", step).open(name, crosses_tasks)

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
with make("EnvGroup", 4).open("elsewhere", False):
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
    options = [
        "-t",
        "nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=nvtx",
        "--nvtx-capture=gate@gpuprof-gate",
    ]
    options += [
        "--capture-range-end=repeat:1",
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
        "-o",
        str(directory / "report"),
    ]
    command = ["nsys", "profile", *options, sys.executable, "-c", PROGRAM]
    profile(command)
    labels(str(directory / "report.nsys-rep"))  # a fixture is made again only where it fails itself
    return directory / "report.nsys-rep"


def test_what_lies_inside_the_gate_is_recorded(report: Path) -> None:
    """Each range once, whatever the order in which it ended; none from before or after the gate."""
    names = [
        "gate",
        "outer",
        "inner",
        "first",
        "second",
        "between",
        "crossing",
        "raises",
        "elsewhere",
    ]
    assert Counter(names) == labels(str(report))


def rows(report: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in a report."""
    database = report.with_suffix(".sqlite")
    command = ["nsys", "export", "-t", "sqlite", "-f", "true", "-o", str(database), str(report)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def test_a_range_that_ends_out_of_order_ends_no_other(report: Path) -> None:
    """A range that ends late ends together with the range above it."""
    times = {name: (start, end) for name, start, end in rows(report, TIMES)}
    assert (
        times["second"][0]
        < times["between"][0]
        < times["between"][1]
        < times["second"][1]
        < times["first"][1]
        < times["crossing"][0]
    )


def test_ranges_are_described_by_their_group_and_step(report: Path) -> None:
    """The group is the category and sets the colour; the step, if any, is the payload."""
    found = {name: (group, argb, step) for name, group, argb, step in rows(report, DESCRIBED)}
    assert ("ActorGroup", 0xFF1F77B4, 3) == found["outer"] == found["crossing"]
    assert ("ActorGroup", 0xFF1F77B4, None) == found["raises"]
    assert ("EnvGroup", 0xFF76B900, 4) == found["elsewhere"]


def test_without_a_tool_ranges_cost_nothing_and_do_nothing() -> None:
    """The dummy domain of nvtx is kept where nobody listens."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode
    assert "" == done.stderr

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
from gpuprof_nsight._nvtx import ranges
from support.patient_nsys import profile
from support.report_reader import labels

pytestmark = pytest.mark.nsys
HOW = ["compiled", "in Python"] if ranges.compiled else ["in Python"]

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
import asyncio
import threading
from gpuprof_timing import Timing, set_range_opener
from gpuprof.backend import Window, Worker
from gpuprof._session.capture import in_task
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

timing = Timing()

def fill_slot(group, step):         # as the session does
    opened = make(group, step)
    set_range_opener(lambda name, crosses: opened.open(name, crosses or in_task()))

def enter(name):
    scope = timing.add_time(name)
    scope.__enter__()
    return scope.__exit__

async def in_tasks():
    async def task(name):
        with timing.add_time(name):
            await asyncio.sleep(0)
    await asyncio.gather(task("scope task 1"), task("scope task 2"))

fill_slot("ActorGroup", 3)
for _ in range(2):                  # the first range of a name may be opened in another way
    with timing.add_time("scope outer"), timing.timeit("scope inner"):
        pass
    first, second = enter("scope first"), enter("scope second")
    first(None, None, None)
    with timing.add_time("scope between"):
        pass
    second(None, None, None)
    thread = threading.Thread(target=enter("scope elsewhere"), args=(None, None, None))
    thread.start(), thread.join()
    with timing.add_time("scope after it"):
        pass
    asyncio.run(in_tasks())
    with timing.add_time("scope \u00e9"):
        set_range_opener(None)
    fill_slot("EnvGroup", 4)
set_range_opener(None)
gate.close(*here)
gate.close(*here)                        # once is enough
with open_range("after", 3, False):
    pass
"""


SCOPES = (
    "outer", "inner", "first", "second", "between", "elsewhere", "after it", "task 1", "task 2",
    "é",
)  # fmt: skip


def with_ranges(how: str) -> dict[str, str]:
    """An environment for programs whose scopes and ranges are compiled, or in Python."""
    pure = "1" if how == "in Python" else "0"
    return {"GPUPROF_TIMING_PURE": pure, "GPUPROF_NSIGHT_PURE": pure}


@pytest.fixture(scope="module", params=HOW)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    profile(command, with_ranges(request.param))
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
    found = labels(str(report))
    assert Counter(names) == Counter({name: n for name, n in found.items() if name in names})


def test_every_scope_has_its_range(report: Path) -> None:
    """Also one that is open when the slot is emptied, and where the name is not ASCII."""
    found = labels(str(report))
    scopes = {name: count for name, count in found.items() if name.startswith("scope")}
    assert {f"scope {name}": 2 for name in SCOPES} == scopes


def test_a_scope_that_ends_elsewhere_ends_no_other(report: Path) -> None:
    """Its range ends together with the one above it, as one that ends out of order does."""
    times: dict[str, list[tuple[int, int]]] = {}
    for name, start, end in sorted(rows(report, TIMES), key=lambda row: row[1]):
        times.setdefault(name, []).append((start, end))
    for turn in range(2):
        at = {name: times[f"scope {name}"][turn] for name in SCOPES}
        assert at["outer"][0] <= at["inner"][0] < at["inner"][1] <= at["outer"][1]
        assert at["first"][0] < at["second"][0] < at["between"][0]
        assert at["between"][1] < at["second"][1] <= at["first"][1]
        assert at["elsewhere"][0] < at["after it"][0]
        assert at["after it"][1] <= at["elsewhere"][1] < at["task 1"][0]


def test_ranges_of_tasks_are_started_and_ended(report: Path) -> None:
    """Their ends may cross, which pushed ranges cannot."""
    query = """
        SELECT DISTINCT event.eventType FROM NVTX_EVENTS AS event
        JOIN StringIds AS strings ON strings.id = event.textId WHERE strings.value {}
    """
    assert [(60,)] == rows(
        report, query.format("LIKE 'scope task %' OR strings.value = 'crossing'")
    )
    assert [(59,)] == rows(
        report, query.format("LIKE 'scope%' AND strings.value NOT LIKE 'scope task %'")
    )


def test_all_ranges_are_in_one_domain(report: Path) -> None:
    """Whoever opened them: NVTX is initialised by each."""
    query = """
        SELECT DISTINCT named.text FROM NVTX_EVENTS AS event
        JOIN StringIds AS strings ON strings.id = event.textId
        JOIN NVTX_EVENTS AS named ON named.eventType = 75 AND named.domainId = event.domainId
        WHERE event.eventType IN (59, 60) AND strings.value LIKE 'scope%'
    """
    assert [("gpuprof",)] == rows(report, query)


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


def test_scopes_have_the_step_of_the_window_that_is_open(report: Path) -> None:
    """Nothing of an earlier window's ranges is used again."""
    found = rows(report, DESCRIBED)
    described = {(group, step) for name, group, _, step in found if name == "scope outer"}
    assert {("ActorGroup", 3), ("EnvGroup", 4)} == described


@pytest.mark.parametrize("how", HOW)
def test_without_a_tool_ranges_cost_nothing_and_do_nothing(how: str) -> None:
    """The dummy domain of nvtx is kept where nobody listens."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=with_ranges(how)
    )
    assert 0 == done.returncode
    assert "" == done.stderr


@pytest.mark.skipif(not ranges.compiled, reason="ranges are in Python here")
def test_compiled_ranges_leave_nothing_behind() -> None:
    """Neither ranges, nor what is kept of names without end."""
    program = """
import sys
from gpuprof_nsight._nvtx.ranges import make
from gpuprof_timing import Timing, set_range_opener

def use(names):
    opened = make("ActorGroup", 3)
    set_range_opener(opened.open)
    timing = Timing()
    for name in names:
        with timing.add_time("scope"), opened.open(f"name {name}", False), opened.open("c", True):
            late = opened.open("late", False)
            late.__enter__()
            with opened.open("above", False):
                late.__exit__(None, None, None)
    set_range_opener(None)

use(range(5000))
before = sys.getallocatedblocks()
for turn in range(1, 4):
    use(range(turn * 5000, turn * 5000 + 5000))
print(sys.getallocatedblocks() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert 10_000 > int(done.stdout)  # of 60,000 ranges and 15,000 names, of which 4,096 are kept


def test_a_range_is_entered_once() -> None:
    """A second time it raises, which the slot takes for a fault of the profiler."""
    if not ranges.compiled:
        pytest.skip("ranges are in Python here")
    opened = ranges.make("ActorGroup", 3).open("a", False)
    with opened, pytest.raises(RuntimeError, match="entered before"):
        opened.__enter__()  # type: ignore[attr-defined]

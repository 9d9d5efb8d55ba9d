"""`gpuprof report --nvtx` of a real run under a real nsys."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.launched import GPUPROF, NSIGHT, ROOT, reports, run

PROGRAM = """
import time, gpuprof

for step in range(3):
    with gpuprof.step(step), gpuprof.timer("train"):
        for _ in range(2):
            with gpuprof.timer("forward"):
                time.sleep(0.01)
        with gpuprof.timer("backward"), gpuprof.timer("forward"):
            time.sleep(0.01)
"""


ASYNC = """
import asyncio, gpuprof

@gpuprof.timer("generate")
async def generate():
    with gpuprof.timer("sample"):
        await asyncio.sleep(0.01)

with gpuprof.step(0), gpuprof.timer("train"):
    asyncio.run(generate())
"""


@pytest.mark.nsys
def test_nsys_s_own_tables_without_the_gate(tmp_path: Path) -> None:
    """As the page on ranges says: which reports have the gate's row, and how to be rid of it."""
    command = [*GPUPROF, *NSIGHT, "--set", "steps=[0]", "--", sys.executable, "-c", ASYNC]
    done = run(tmp_path, command)
    assert 0 == done.returncode, done.stderr
    (report,) = reports(tmp_path).values()

    def ranges(name: str, *words: str) -> set[str]:
        stats = ["nsys", "stats", "--quiet", "--force-export=true", "--format=csv", *words]
        done = run(tmp_path, [*stats, "--report", name, str(report)])
        assert 0 == done.returncode, done.stdout + done.stderr
        return {line.rpartition(",")[2] for line in done.stdout.splitlines() if ":" in line}

    offered = run(tmp_path, ["nsys", "stats", "--help-reports"]).stdout
    whole, pushed = (
        ("nvtx_sum", "nvtx_pushpop_sum") if "nvtx_sum" in offered else ("nvtxsum", "nvtxppsum")
    )
    page = (ROOT / "docs" / "ranges.md").read_text()
    assert [] == [name for name in (whole, pushed, "@grep -v gpuprof-gate") if name not in page]
    tasks = {"gpuprof:asyncio.run", "gpuprof:asyncio.sleep"}
    ours = {"gpuprof:train", "gpuprof:generate", "gpuprof:sample", *tasks}
    assert {*ours, "gpuprof-gate:gate"} == ranges(whole)
    assert {"gpuprof:train", "gpuprof:asyncio.run"} == ranges(pushed)
    assert ours == ranges(whole, "--output", "@grep -v gpuprof-gate")


def names(ranges: list[dict[str, Any]]) -> dict[str, Any]:
    """How often each name occurs, with what is inside of it."""
    return {one["name"]: (len(one["durations"]), names(one["children"])) for one in ranges}


@pytest.mark.nsys
def test_groups_and_windows_stay_apart_and_ranges_nest(tmp_path: Path) -> None:
    """Two groups with the same names, each with two windows, have four tables of their own."""
    for group in ("Actor", "Critic"):
        command = [*GPUPROF, *NSIGHT, "--group", group, "--set", "steps=[1,2]", "--"]
        done = run(tmp_path, [*command, sys.executable, "-c", PROGRAM], GPUPROF_RUN="a-run")
        assert 0 == done.returncode, done.stderr
    report = [sys.executable, "-m", "gpuprof", "report", "--nvtx", "--json", "gpuprof-output"]
    windows = json.loads(run(tmp_path, report).stdout)["windows"]
    assert [
        ("a-run", group, [0], f"step-{step}") for group in ("Actor", "Critic") for step in (1, 2)
    ] == [(window["run"], window["group"], window["ranks"], window["window"]) for window in windows]
    inside = {"forward": (2, {}), "backward": (1, {"forward": (1, {})})}
    assert [{"train": (1, inside)}] * 4 == [names(window["ranges"]) for window in windows]
    for window in windows:
        (train,) = window["ranges"]
        assert train["share"] == pytest.approx(train["durations"][0] / 1e9 / window["seconds"])
        assert 0 < train["share"] <= 1.001  # two clocks

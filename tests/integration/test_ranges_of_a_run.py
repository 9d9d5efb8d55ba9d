"""`gpuprof report --nvtx` of a real run under a real nsys."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.launched import GPUPROF, NSIGHT, run

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

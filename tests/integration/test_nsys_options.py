"""nsys's own options that change what is recorded, on a real Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuprof.ray import Profiler
from support.launching import config, start
from support.report_reader import labels

pytestmark = pytest.mark.nsys


@pytest.mark.parametrize("end", ["stop", "none"])
def test_a_range_end_that_leaves_one_report(ray: Any, tmp_path: Path, end: str) -> None:
    """With `stop` the receipt reports the second window as left out; `none` records on."""
    with Profiler(
        config(tmp_path, nsight={"preset": "light", "options": {"capture-range-end": end}})
    ) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in (2, 5):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    first, second = profiler.finalize().rows
    assert "ActorGroup-0.step-2.nsys-rep" == Path(first.file or "").name
    assert "complete" == first.state
    found = labels(first.file)
    assert 3 == found["forward-2"]
    assert (3 if end == "none" else 0) == found["forward-5"]
    if end == "none":
        assert first.file == second.file
        assert "complete" == second.state
    else:
        assert second.file is None
        assert "missing" == second.state
        assert second.reason.startswith("the profiler options write no file for this window")


def test_what_an_old_nsys_lacks_is_left_out_under_the_session_gate(
    ray: Any, tmp_path: Path
) -> None:
    """Also by the worker, which gives its part of the options to `nsys start`."""
    options = {"t": "nvtx", "gpu-metrics-devices": "none"}
    nsight = {"gate": "session", "options": options, "optional": ["gpu-metrics-devices"]}
    with Profiler(config(tmp_path, steps=[2], nsight=nsight)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(2):
            ray.get(actor.train.remote(2))
    (row,) = profiler.finalize().rows
    assert "complete" == row.state
    assert 3 == labels(row.file)["forward-2"]

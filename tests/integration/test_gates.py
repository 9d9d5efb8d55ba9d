"""The gates: discrete scopes, sessions, and no gate that freezes other threads."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import Receipt
from gpuprof.ray import Profiler
from support.integration_workers import Stalling
from support.launching import config, start
from support.report_reader import labels

pytestmark = pytest.mark.nsys


def test_every_outermost_scope_is_a_window_when_discrete(ray: Any, tmp_path: Path) -> None:
    """Each discrete scope has its report, named by step, scope and occurrence."""
    with Profiler(config(tmp_path, steps=["2:4"], discrete=True)) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step, calls in enumerate([1, 1, 2, 1, 1]):
            with profiler.step(step):
                ray.get([actor.train.remote(step) for _ in range(calls)])
    receipt = profiler.finalize()
    names = [
        f"ActorGroup-0.step-{where}.nsys-rep"
        for where in ("2.actor%2Frun_training-1", "2.actor%2Frun_training-2")
    ]
    names.append("ActorGroup-0.step-3.actor%2Frun_training-1.nsys-rep")
    assert [(name, "complete") for name in names] == [
        (Path(row.file or "").name, row.state) for row in receipt.rows
    ]
    for row, step in zip(receipt.rows, (2, 2, 3), strict=True):
        assert {"actor/run_training": 1, f"forward-{step}": 3, f"annotated-{step}": 1} == labels(
            row.file
        )


def test_discrete_windows_are_chosen_and_limited(ray: Any, tmp_path: Path) -> None:
    """Only scopes that match are windows; those beyond `max_windows` are a row of the receipt."""
    receipt = forward_scopes(ray, tmp_path, max_windows=2)
    *captured, limit = receipt.rows
    assert [f"step-0 forward-0 {number + 1}" for number in range(2)] == [
        row.window for row in captured
    ]
    assert [{"forward-0": 1}] * 2 == [labels(row.file) for row in captured]
    assert ("1 more scope", "missing", Reason.LIMIT_REACHED) == (
        limit.window,
        limit.state,
        limit.cause,
    )


def test_discrete_windows_end_when_the_disk_budget_is_used(ray: Any, tmp_path: Path) -> None:
    """A budget of bytes stops opening windows; a report is 150 to 250 kB."""
    receipt = forward_scopes(ray, tmp_path, max_bytes=250_000)
    *captured, limit = receipt.rows
    assert len(captured) in (1, 2)
    assert [{"forward-0": 1}] * len(captured) == [labels(row.file) for row in captured]
    assert limit.window.startswith(f"{3 - len(captured)} more scope")
    assert "further scopes were not captured; max_bytes reached" == limit.reason


def forward_scopes(ray: Any, directory: Path, **limit: int) -> Receipt:
    """Run one step of one worker, whose three forward scopes ask for a window each."""
    with Profiler(
        config(directory, steps=[0], discrete=True, discrete_labels=["forward-*"], **limit)
    ) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        with profiler.step(0):
            ray.get(actor.train.remote(0))
    return profiler.finalize()


def test_the_session_gate_records_each_step(ray: Any, tmp_path: Path) -> None:
    """As the NVTX gate does, and the file is final as soon as the window is closed."""
    with Profiler(config(tmp_path, nsight={"gate": "session"})) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        for step in range(6):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
            found = sorted(file.name for file in tmp_path.glob("*/*/*.nsys-rep"))
            assert [
                f"ActorGroup-0.step-{window}.nsys-rep" for window in (2, 5) if window <= step
            ] == found
    for row in profiler.finalize().rows:
        assert 3 == labels(row.file)[f"forward-{row.window.removeprefix('step-')}"]


def test_the_template_names_the_files_and_nothing_is_overwritten(ray: Any, tmp_path: Path) -> None:
    """Two windows that the template gives one name are two files."""
    with Profiler(config(tmp_path, file_name="{worker}_{pid}")) as profiler:
        actor = start(profiler, "ActorGroup", 0)
        pid = ray.get(actor.identity.remote())["pid"]
        for step in (2, 5):
            with profiler.step(step):
                ray.get(actor.train.remote(step))
    rows = profiler.finalize().rows
    assert [f"ActorGroup-0_{pid}.nsys-rep", f"ActorGroup-0_{pid}.2.nsys-rep"] == [
        Path(row.file or "").name for row in rows
    ]
    assert [{"forward-2": 3}, {"forward-5": 3}] == [
        {label: count for label, count in labels(row.file).items() if label.startswith("forward")}
        for row in rows
    ]


@pytest.mark.parametrize("gate", [pytest.param("nvtx", marks=pytest.mark.exhaustive), "session"])
def test_no_gate_freezes_the_workers_other_threads(ray: Any, tmp_path: Path, gate: str) -> None:
    """A window's edges do not hold a thread that only reads the clock.

    With the interpreter's lock held, each window would hold it for a tenth of a second when it
    opens, and for more than half a second when it closes. A busy machine holds it now and then as
    long, but not each time, so the best of six counts.
    """
    control, opening, closing = [], [], []
    steps = [1, 3, 5, 7, 9, 11]
    with Profiler(config(tmp_path, steps=steps, nsight={"gate": gate})) as profiler:
        actor = start(profiler, "ActorGroup", 0, Stalling, max_concurrency=2)
        ray.get(actor.begin.remote())
        for step in range(12):
            with profiler.step(step):
                (opening if step % 2 else control).append(ray.get(actor.longest_stall.remote()))
                ray.get(actor.train.remote(step))
            (closing if step % 2 else control).append(ray.get(actor.longest_stall.remote()))
    assert profiler.finalize().complete
    usual = 2 * statistics.median(control)
    assert min(opening) <= max(usual, 0.05), (opening, control)
    assert min(closing) <= max(usual, 0.25), (closing, control)


def test_twelve_reports_of_three_steps_and_four_workers(ray: Any, tmp_path: Path) -> None:
    """Each is named by its worker and step and has the labels of that step and no other."""
    steps = (1, 3, 4)
    with Profiler(config(tmp_path, steps=list(steps))) as profiler:
        actors = [start(profiler, "ActorGroup", rank) for rank in range(4)]
        for step in range(6):
            with profiler.step(step):
                ray.get([actor.train.remote(step) for actor in actors])
    receipt = profiler.finalize()
    expected = {
        f"ActorGroup-{rank}.step-{step}.nsys-rep": {
            f"forward-{step}": 3,
            f"annotated-{step}": 1,
            "actor/run_training": 1,
            "gate": 1,
        }
        for rank in range(4)
        for step in steps
    }
    assert expected == {Path(row.file or "").name: labels(row.file) for row in receipt.rows}

"""Which reports nsys leaves, by what names, and which windows they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from gpuprof.backend import Window, Worker
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._reports.name import expected_reports, name_reports

WINDOWS = tuple(Window(number, number, number + 1) for number in (1, 2, 3))
WORKER = Worker("run", "ActorGroup", 0, "node", "1", "/out", WINDOWS)
LIFETIME = (Window(1, None, None),)


@pytest.mark.parametrize(
    ("end", "steps"),
    [
        (None, {1: 1, 2: 2, 3: 3}),
        ("repeat", {1: 1, 2: 2, 3: 3}),
        ("repeat:2", {1: 1, 2: 2}),
        ("repeat-shutdown:1", {1: 1}),
        ("stop", {1: 1}),
        ("stop-shutdown", {1: 1}),
        ("none", {1: 1, 2: 1, 3: 1}),
    ],
)
def test_windows_that_are_not_recorded_have_no_report(
    end: str | None, steps: dict[int, int]
) -> None:
    """The option for a window's end decides which windows have a report."""
    options = NsightOptions(options={} if end is None else {"capture-range-end": end})
    expected = {number: f"/out/ActorGroup-0.step-{step}.nsys-rep" for number, step in steps.items()}
    assert expected == {
        number: file for number, (file,) in expected_reports(WORKER, WINDOWS, options).items()
    }


def named(
    directory: Path, files: list[str], windows: tuple[Window, ...], ended: bool, **options: Any
) -> dict[int, list[str]]:
    """The names that reports get which nsys has written."""
    for name in files:
        (directory / name).write_text("a report")
    worker = attrs.evolve(WORKER, directory=str(directory), windows=windows)
    found = name_reports(worker, windows, NsightOptions(options={"t": "nvtx", **options}), ended)
    return {number: [Path(path).name for path in paths] for number, paths in found.items()}


def test_one_report_is_not_numbered(tmp_path: Path) -> None:
    """A single recorded window is final at once, but not with `none`, which records on."""
    alone = ["ActorGroup-0.start-1.nsys-rep"]
    (tmp_path / "none").mkdir()
    assert {1: ["ActorGroup-0.step-1.nsys-rep"]} == named(
        tmp_path, alone, WINDOWS, False, **{"capture-range-end": "stop"}
    )
    assert {} == named(tmp_path / "none", alone, WINDOWS, False, **{"capture-range-end": "none"})
    expected = {number: ["ActorGroup-0.step-1.nsys-rep"] for number in (1, 2, 3)}
    assert expected == named(
        tmp_path / "none", alone, WINDOWS, True, **{"capture-range-end": "none"}
    )


@pytest.mark.parametrize("number", ["", ".1"])
def test_a_report_that_is_written_at_once_is_named_at_once(tmp_path: Path, number: str) -> None:
    """The first report is found with a number or without, and so is the next one."""
    assert {1: ["ActorGroup-0.step-1.nsys-rep"]} == named(
        tmp_path, [f"ActorGroup-0.start-1{number}.nsys-rep"], WINDOWS[:1], False
    )
    expected = {2: ["ActorGroup-0.step-2.nsys-rep"]}
    assert expected == named(tmp_path, ["ActorGroup-0.start-1.2.nsys-rep"], WINDOWS[:2], False)


@pytest.mark.parametrize("mode", ["defer", "async"])
def test_a_report_that_is_written_later_is_named_in_the_end(tmp_path: Path, mode: str) -> None:
    """What is there may not be whole."""
    files, end = ["ActorGroup-0.start-1.1.nsys-rep"], {"capture-range-end": f"repeat:3:{mode}"}
    assert {} == named(tmp_path, files, WINDOWS, False, **end)
    assert {1: ["ActorGroup-0.step-1.nsys-rep"]} == named(tmp_path, files, WINDOWS, True, **end)


def test_a_range_of_the_users_own_may_leave_any_number_of_reports(tmp_path: Path) -> None:
    """No report keeps nsys's name: they are in numeric order, and the last window gets the rest."""
    files = [f"ActorGroup-0.start-1.{number}.nsys-rep" for number in (10, 1, 2)]
    own = {"c": "nvtx", "nvtx-capture": "mine@theirs", "capture-range-end": "repeat"}
    (tmp_path / "life").mkdir()
    assert {
        1: ["ActorGroup-0.step-1.nsys-rep"],
        2: ["ActorGroup-0.step-2.nsys-rep", "ActorGroup-0.step-2.2.nsys-rep"],
    } == named(tmp_path, files, WINDOWS[:2], True, **own)
    lifetime = [
        "ActorGroup-0.lifetime.nsys-rep",
        "ActorGroup-0.lifetime.2.nsys-rep",
        "ActorGroup-0.lifetime.3.nsys-rep",
    ]
    assert {1: lifetime} == named(tmp_path / "life", files, LIFETIME, True, **own)

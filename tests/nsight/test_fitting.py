"""Options that an old nsys lacks, and what options will cost."""

from __future__ import annotations

from typing import Any

import pytest
from gpuprof.backend import Tool, Window, Worker
from gpuprof_nsight._command.fitting import fitting, too_new
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight.plugin import NsightBackend

WORKER = Worker("run", "ActorGroup", 0, "node", "1", "/out", (Window(1, 3, 4),), has_gpu=True)
WANTED = {"t": "nvtx", "python-backtrace": "cuda"}


def notes(version: str | None = None, **options: Any) -> str:
    return "\n".join(
        NsightBackend(NsightOptions(**options)).plan_notes(WORKER, Tool("nsys", version))
    )


@pytest.mark.parametrize(
    ("version", "kept"), [("2022.4.2.1", False), ("2023.4.4", True), ("2025.1", True), (None, True)]
)
def test_an_optional_option_of_a_newer_release(version: str | None, kept: bool) -> None:
    """An optional option is dropped, with a note, if nsys is too old; not if it is unknown."""
    options = NsightOptions(options=WANTED, optional=["python-backtrace"])
    assert kept == ("python-backtrace" in fitting(options, Tool("nsys", version)).options)
    assert kept != (
        "python-backtrace left out: nsys"
        in notes(version, options=WANTED, optional=["python-backtrace"])
    )


def test_an_option_that_the_help_does_not_list() -> None:
    """nsys's own help decides, whatever its release, also for options unknown to gpuprof."""
    options = NsightOptions(
        options={**WANTED, "brand-new": "1"}, optional=["python-backtrace", "brand-new"]
    )
    tool = Tool("nsys", "2099.1", {"profile": ["t", "trace", "brand-new"]})
    assert {"t": "nvtx", "brand-new": "1"} == fitting(options, tool).options
    assert ["python-backtrace"] == too_new(options, tool)


def test_what_is_not_optional_stays() -> None:
    """It is for nsys to refuse it, before anything starts."""
    assert [] == too_new(NsightOptions(options=WANTED), Tool("nsys", "2022.4.2.1"))


def test_sampling_is_told_its_cost() -> None:
    """And what does without it."""
    assert "sample=process-tree and cpuctxsw=process-tree slow the worker down" in notes(
        preset="deep"
    )
    assert "slow" not in notes(preset="standard")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"t": "nvtx"},
            ("sample=process-tree and cpuctxsw=process-tree (nsys's default) slow the worker down"),
        ),
        (
            {"s": "system-wide", "cpuctxsw": "none"},
            "sample=system-wide and cpuctxsw=system-wide slow the worker down",
        ),
        ({"s": "none", "cpuctxsw": "process-tree"}, "cpuctxsw=process-tree slows the worker down"),
    ],
)
def test_sampling_that_was_not_asked_for_is_told_its_cost_too(
    options: dict[str, Any], said: str
) -> None:
    """By default nsys samples, and with samples it traces context switches."""
    assert f"{said} in every window; avoid it with nsight.preset: standard" in notes(
        options=options
    )


def test_no_samples_are_no_switches_either() -> None:
    """nsys would trace them, with which it can hang: what is added is said, and costs nothing."""
    assert "cpuctxsw=none added to sample=none" in notes(options={"s": "none"})
    assert "slow" not in notes(options={"s": "none"})


def test_large_reports_are_foretold() -> None:
    """For the traces that make them."""
    assert "osrt, cudnn, cublas, cudabacktrace: a report of one step can reach gigabytes" in notes(
        preset="deep"
    )
    assert "gigabytes" not in notes(preset="light")

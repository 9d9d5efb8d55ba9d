"""The three lines at the end of a run: quick, and never a fault of the job."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from gpuprof._report import explain
from support.simulated_job import Job


def said(caplog: pytest.LogCaptureFixture, directory: Path) -> str:
    """What is logged of a run."""
    with caplog.at_level(logging.INFO, "gpuprof"):
        explain.print_verdict(str(directory), explain.quick_answer(str(directory)))
    return caplog.text


def test_three_lines_answer_three_questions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What bounds a step, who waits, and what would help."""
    text = said(caplog, Job("slow rank", seed=3, steps=24).write(tmp_path / "run"))
    assert "bounds a step:  RolloutGroup-1 4" in text
    assert "waits:          ActorGroup" in text
    assert "would help:     if RolloutGroup-1 were as fast" in text


def test_the_first_line_has_the_next_commands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole explanation, and a page."""
    directory = Job("slow rank", seed=3, steps=24).write(tmp_path / "run")
    assert f"; more: gpuprof explain {directory} (as a page: gpuprof html)\n" in said(
        caplog, directory
    )


def test_the_driver_is_introduced_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its name, Runner, does not say what it is."""
    directory = Job("serial driver", seed=3, steps=24).write(tmp_path / "run")
    text = said(caplog, directory)
    assert "Runner (the driver) 24 %" in text
    assert 1 == text.count("(the driver)")


def test_a_large_run_gets_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a job does not wait for a long answer."""
    monkeypatch.setattr(explain, "_QUICK", 10)
    directory = Job(None, seed=3, steps=4).write(tmp_path / "run")
    text = said(caplog, directory)
    assert f"gpuprof explain {directory}" in text
    assert "would help" not in text


def test_too_few_steps_say_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two steps explain nothing."""
    assert "" == said(caplog, Job(None, seed=3, steps=2).write(tmp_path / "run"))


def test_a_run_without_ledgers_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be switched off."""
    assert "" == said(caplog, tmp_path)


def test_a_broken_ledger_does_not_end_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and that is all."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "A-0.start-1.ledger").write_bytes(b"x")
    assert "no explanation" in said(caplog, tmp_path)

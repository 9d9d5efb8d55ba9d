"""What the attributes of steps add up to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from click.testing import CliRunner
from gpuprof._cli import main
from gpuprof._session import public, totals
from gpuprof._session.totals import Totals
from gpuprof._shim.row import VARIABLE, encode
from gpuprof.ray import Profiler
from support.manual_clock import Clock
from support.recorder import Recorder
from support.run_files import session_file


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test advances."""
    made = Clock()
    monkeypatch.setattr(totals, "perf_counter", lambda: made() / 1e9)
    return made


@pytest.fixture
def worker(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """This process is a worker with a session."""
    monkeypatch.setenv(VARIABLE, encode(recorder.row()))
    public._forget()
    yield recorder
    public._forget()


def test_attributes_of_steps_are_added_up(clock: Clock, worker: Recorder) -> None:
    """In windows and outside; a step without attributes counts for nothing."""
    for step in range(4):
        with gpuprof.step(step, frames=512, tokens=0.5):
            clock.advance(2)
        with gpuprof.step(step):
            pass
    here = public.session()
    assert here is not None
    assert {"sums": {"frames": 2048, "tokens": 2.0}, "seconds": 8.0} == here.snapshot()["totals"]


def test_the_file_of_a_job_without_attributes_has_no_totals(worker: Recorder) -> None:
    """They are as absent as the attributes."""
    with gpuprof.step(0):
        pass
    here = public.session()
    assert here is not None
    assert "totals" not in here.snapshot()


def test_an_attribute_may_have_any_name(worker: Recorder) -> None:
    """Also that of a parameter."""
    with gpuprof.step(0, number=3, self=4):
        pass
    here = public.session()
    assert here is not None
    assert {"number": 3, "self": 4} == here.snapshot()["totals"]["sums"]


def test_a_step_that_fails_is_not_counted(worker: Recorder) -> None:
    """Its frames may not have been collected."""
    with pytest.raises(KeyError), gpuprof.step(0, frames=512):
        raise KeyError
    here = public.session()
    assert here is not None
    assert "totals" not in here.snapshot()


@pytest.mark.parametrize("value", ["many", None, True, float("nan"), 10**400, [1]])
def test_what_is_no_number_is_named_once(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The step goes on, and the other attributes count."""
    counted = Totals()
    with caplog.at_level("WARNING", "gpuprof"):
        for _ in range(2):
            with counted.step(nullcontext(), {"frames": value, "tokens": 7}):
                pass
    expected = (
        f"step attribute frames: {repr(value)[:80]} is not valid; expected a finite number, such "
        "as an int or a float; the value is left out of the total"
    )
    assert [expected] == caplog.messages


def test_the_driver_prints_what_its_steps_add_up_to(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """With its tree, as in a job that profiles nothing."""
    with caplog.at_level("INFO", "gpuprof"), Profiler(None) as profiler:
        for step in range(2):
            with profiler.step(step, frames=512):
                clock.advance(0.5)
    assert "\nframes: 1024 in all steps, 1024.0 per second" in caplog.text


def test_a_report_adds_up_the_ranks_of_a_group(tmp_path: Path) -> None:
    """They ran at the same time, so the longest time counts."""
    (tmp_path / "node").mkdir()
    for rank in range(2):
        added: Any = {"sums": {"frames": 1000}, "seconds": 8.0 + 2 * rank}
        session = session_file(name=f"A-{rank}", rank=rank, totals=added)
        (tmp_path / "node" / f"A-{rank}.start-1.json").write_text(json.dumps(session))
    shown = CliRunner().invoke(main, ["report", str(tmp_path)]).stdout
    assert "\nframes: 2000 in all steps, 200.0 per second\n" in shown
    data = json.loads(CliRunner().invoke(main, ["report", "--json", str(tmp_path)]).stdout)
    assert {"sums": {"frames": 2000}, "seconds": 10.0} == data["A, 2 processes"]["totals"]

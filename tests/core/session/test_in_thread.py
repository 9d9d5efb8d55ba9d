"""Backends that record the thread that starts them."""

from __future__ import annotations

import pstats
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuprof._session.control import ControlThread
from gpuprof._session.session import Session
from gpuprof.ray import _listener
from gpuprof_timing import Timing, annotate, set_range_opener
from support.recorder import Recorder

SOURCE = "from support.thread_profiler import ThreadProfiler"


def job() -> None:
    """What is to be seen."""


@pytest.fixture
def make(install: Any, tmp_path: Path) -> Callable[..., Session]:
    """Makes a session of a worker with windows at steps 2 and 5 to 6."""
    install(SOURCE, profiler="ThreadProfiler")
    recorder = Recorder("", tmp_path)

    def make(**more: Any) -> Session:
        return Session(recorder.row(backend="profiler", **more), Timing())

    return make


def recorded(session: Session) -> set[str]:
    """The names of the functions in the files of a session."""
    records: Any = session.snapshot()["windows"]
    files = [file for record in records for file in record["files"] or ()]
    stats: Any = pstats.Stats(*files)
    return {name for _, _, name in stats.stats}


def test_the_thread_of_the_job_is_recorded(make: Callable[..., Session]) -> None:
    """It opens and closes the window itself, and not the thread that talks to other profilers."""
    session = make()
    session.open(1)
    job()
    session.close(1)
    assert "job" in recorded(session)


def test_scopes_are_recorded_in_their_thread(make: Callable[..., Session]) -> None:
    """With `discrete`, where a scope begins and ends."""
    session = make(discrete=True)
    session.open(1)
    with annotate("scope"):
        job()
    session.close(1)
    set_range_opener(None)
    assert "job" in recorded(session)


def test_nothing_is_left_on(make: Callable[..., Session]) -> None:
    """The job's thread has its profile function back."""
    session = make()
    before = sys.getprofile()
    session.open(1)
    session.close(1)
    assert before is sys.getprofile()


def test_a_driver_is_told_where_windows_open(
    make: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its orders come on a thread that is not the job's."""
    session = make()
    answers: list[Any] = []
    monkeypatch.setattr(_listener, "_send", lambda _, answer: answers.append(answer))
    order: Any = {"kind": "open", "window": (1, 2, 3), "expiry": 1e12, "number": 7}
    connection: Any = None
    _listener._obey(session, connection, order)
    problem = (
        "profiler records the thread that opens its window; mark the steps in the worker, with "
        "gpuprof.step"
    )
    assert [{"number": 7, "problem": problem, "window": None}] == answers


def test_a_control_thread_pauses() -> None:
    """What is submitted meanwhile runs afterwards."""
    control = ControlThread(lambda: None, interval=60.0)
    with control.paused(30):
        later = control.submit(threading.get_ident)
        assert not later.done()
    assert threading.get_ident() != later.result(30)


def test_a_control_thread_that_is_busy_cannot_pause() -> None:
    """Whoever asks goes on without."""
    control = ControlThread(lambda: None, interval=60.0)
    over = threading.Event()
    control.submit(over.wait)
    with pytest.raises(TimeoutError, match="was busy for 0 s"), control.paused(0):
        pass
    over.set()
    assert "done" == control.submit(lambda: "done").result(30)

"""The control thread: what it is given to do may fail, and it goes on."""

from __future__ import annotations

import threading

import pytest
from gpuprof._session.control import ControlThread


def test_a_chore_that_fails_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again and said once, and what is submitted later is done."""
    tried = [threading.Event(), threading.Event()]

    def chore() -> None:
        next((event for event in tried if not event.is_set()), tried[-1]).set()
        raise TypeError("not serializable")

    control = ControlThread(chore, interval=0.01)
    assert [True, True] == [event.wait(30) for event in tried]
    assert "done" == control.submit(lambda: "done").result(30)
    assert [
        "a periodic task of the session failed and will be retried: TypeError: not serializable"
    ] == caplog.messages


def test_a_task_that_fails_does_not_end_the_thread() -> None:
    """Who has submitted it is told; the next one is done."""
    control = ControlThread(lambda: None, interval=60.0)
    failed = control.submit(lambda: 1 // 0)
    assert "done" == control.submit(lambda: "done").result(30)
    assert isinstance(failed.exception(30), ZeroDivisionError)


def test_the_end_comes_after_what_was_submitted() -> None:
    """Then the thread ends, and its chore with it."""
    control = ControlThread(lambda: None, interval=60.0)
    thread = control.submit(threading.current_thread)
    last = control.submit(lambda: "done")
    control.end()
    assert "done" == last.result(30)
    thread.result(30).join(30)
    assert not thread.result(30).is_alive()

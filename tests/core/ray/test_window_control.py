"""The driver's windows, with a real connection to a worker's session in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gpuprof._session import public
from gpuprof._session.left_out import LeftOut
from gpuprof._session.session import Session
from gpuprof._shim.row import VARIABLE, encode
from gpuprof.ray import _listener
from gpuprof.ray._steps import Step, Steps
from gpuprof.ray._windows import WindowControl
from gpuprof_timing import Timing
from support.recorder import Recorder
from support.waiting import wait_until


class Driver:
    """A driver of worker A-0, which has windows at step 2 and at steps 5 to 6."""

    def __init__(self, session: Session) -> None:
        self.left_out = LeftOut(Timing())
        self.problems: list[str] = []
        self.steps = Steps(self.begin_step, self.end_step)
        self.control = WindowControl(self.steps, self.left_out)
        self.control.add("A-0", None, session.windows.planned.all)
        _listener.connect(session, self.control.listen_to_all())
        wait_until(self.control.channel.connected, "connected: A-0")

    def begin_step(self, number: int) -> None:
        self.problems += self.control.begin_step(number)

    def end_step(self, number: int, seconds: float | None) -> None:
        self.problems += self.control.end_step(number)

    def run(self, *steps: int) -> list[int]:
        """Runs steps; returns those that are left out."""
        left_out = []
        for number in steps:
            with Step(self.steps, number):
                if self.left_out.active:
                    left_out.append(number)
        return left_out


@pytest.fixture
def drive(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Driver, Session]]]:
    """Starts a session and connects it to a driver."""
    drivers = []

    def drive(**row: Any) -> tuple[Driver, Session]:
        monkeypatch.setenv(VARIABLE, encode(recorder.row(**row)))
        public._forget()
        session = public.session()
        assert session is not None
        drivers.append(Driver(session))
        return drivers[-1], session

    yield drive
    for driver in drivers:
        driver.control.end()
    public._forget()


@pytest.mark.parametrize(
    ("row", "states", "slowed"),
    [
        ({}, ["closed", "closed"], [2, 3, 5, 6, 7]),
        ({"max_bytes": 0}, ["refused", "refused"], []),
        ({"options": {"fail": "start"}}, ["failed", "refused"], [2, 3]),
    ],
    ids=["captured", "refused", "failed"],
)
def test_steps_of_windows_that_never_opened_are_not_left_out(
    drive: Callable[..., tuple[Driver, Session]],
    row: dict[str, Any],
    states: list[str],
    slowed: list[int],
) -> None:
    """Nor by the worker: nothing slows them, and `gpuprof explain` counts them, too.

    A backend that has failed refuses the later windows.
    """
    driver, session = drive(**row)
    assert slowed == driver.run(*range(9))
    assert states == [session.windows.state(number) for number in (1, 2)]
    assert len(slowed) == driver.left_out.steps
    wait_until(lambda: len(slowed) == session.left_out.steps, "heard: which steps are left out")


def test_the_driver_has_the_workers_record(
    drive: Callable[..., tuple[Driver, Session]], recorder: Recorder
) -> None:
    """The whole entry of each window, in each of its states."""
    driver, session = drive()
    for number in range(8):
        with Step(driver.steps, number):
            assert session.windows.entries == driver.control._windows["A-0"].entries
    assert session.windows.entries == driver.control._windows["A-0"].entries
    assert [["/files/step-2"], ["/files/steps-5-6"]] == [
        entry["files"] for entry in driver.control._windows["A-0"].entries
    ]
    assert [] == driver.problems


def test_a_step_number_that_comes_again_opens_no_window(
    drive: Callable[..., tuple[Driver, Session]], recorder: Recorder
) -> None:
    """Nor does it leave the step out."""
    driver, session = drive()
    assert [2, 3] == driver.run(*range(4), *range(5))
    assert ["start step-2", "stop step-2"] == recorder.events
    assert ["a step number that comes again is captured the first time only"] == session.faults


def test_a_worker_that_was_started_again_is_asked_again(
    drive: Callable[..., tuple[Driver, Session]], recorder: Recorder
) -> None:
    """Its record begins anew; the driver has not forgotten what the first start opened."""
    driver, session = drive(windows=[(1, 2, 3), (2, 5, 7)])
    driver.run(2, 3)
    session.windows._entries.clear()  # as in the process that takes its place
    driver.control.add("A-0", None, session.windows.planned.all)
    assert {"A-0": {1}} == driver.control.opened
    driver.run(5)
    assert {"A-0": {1, 2}} == driver.control.opened

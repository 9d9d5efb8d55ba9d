"""Steps that profiling slows, here or on another worker, have a tree of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gpuprof
import pytest
from gpuprof._session import public
from gpuprof._session.file import SessionFile
from gpuprof._session.left_out import LeftOut
from gpuprof._shim.row import VARIABLE, encode
from gpuprof_timing import Timing
from support.recorder import Recorder

Ran = Callable[..., SessionFile]


@pytest.fixture
def ran(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterable[Ran]:
    """Runs steps in a worker, and returns what its file has then."""

    def run(steps: Iterable[int], **row: Any) -> SessionFile:
        monkeypatch.setenv(VARIABLE, encode(recorder.row(**row)))
        public._forget()
        for step in steps:
            with gpuprof.step(step), gpuprof.timer("train"), gpuprof.timer(f"train-{step}"):
                pass
        session = public.session()
        assert session is not None
        return session.snapshot()

    yield run
    public._forget()


def steps_in(tree: dict[str, Any] | None) -> list[int]:
    """The numbers of the steps in a tree."""
    places = Timing.from_dict(tree) if tree is not None else ()
    return [int(key.partition("-")[2]) for key in places if key.startswith("train-")]


@pytest.mark.parametrize(
    "row",
    [{}, {"profiled": False, "rank": 1}, {"unwrapped": "no nsys"}, {"discrete": True}],
    ids=["captures", "is not selected", "runs without its profiler", "captures scopes"],
)
def test_captured_steps_and_those_after_them_are_left_out(ran: Ran, row: dict[str, Any]) -> None:
    """On every worker: those that capture nothing wait for the one that does."""
    file = ran(range(10), **row)
    assert [0, 1, 4, 8, 9] == steps_in(file["timing"])
    assert [2, 3, 5, 6, 7] == steps_in(file["while_profiling"])
    assert 5 == file["steps_left_out"]


def test_the_job_reads_its_whole_tree(ran: Ran) -> None:
    """Its own logs of times must not depend on whether it is profiled."""
    before = gpuprof.timing().snapshot()
    ran(range(10))
    assert {"train": 10} == {
        node["key"]: node["count"] for node in gpuprof.timing().delta(before).to_dict()["children"]
    }


def test_steps_that_do_not_go_up_by_one_are_left_out_too(ran: Ran) -> None:
    """The step after a captured one is the one that comes next, whatever its number."""
    file = ran((1, 5, 8, 11))
    assert ([1, 11], [5, 8]) == (steps_in(file["timing"]), steps_in(file["while_profiling"]))


def test_a_step_number_that_comes_again_is_not_left_out(ran: Ran) -> None:
    """As in a job that counts from 0 in each epoch: only its first occurrence is captured."""
    file = ran([*range(4), *range(4), *range(4)])
    assert 2 == file["steps_left_out"]


def test_steps_that_are_all_captured_leave_their_tree(ran: Ran) -> None:
    """It is the only one."""
    file = ran([5, 6])
    assert ([], [5, 6]) == (steps_in(file["timing"]), steps_in(file["while_profiling"]))


def test_a_run_without_windows_leaves_nothing_out(ran: Ran) -> None:
    """One tree, and no second one."""
    file = ran(range(10), windows=[], captured_steps=[])
    assert list(range(10)) == steps_in(file["timing"])
    assert (None, 0) == (file["while_profiling"], file["steps_left_out"])


def test_a_worker_captured_for_its_whole_life_leaves_nothing_out(ran: Ran) -> None:
    """It says so instead."""
    file = ran(range(3), windows=[(1, None, None)], captured_steps=[])
    assert (True, None, [0, 1, 2]) == (
        file["whole_life"],
        file["while_profiling"],
        steps_in(file["timing"]),
    )


def test_the_drivers_word_counts_more_than_the_workers_own_steps() -> None:
    """A worker may number its steps in another way."""
    left_out = LeftOut(Timing())
    left_out.expect([(2, 3)])
    left_out.driven = True
    left_out.mark(True)
    left_out.begin_step(2)
    left_out.mark(True)
    left_out.begin_step(7)
    assert (True, 2) == (left_out.active, left_out.steps)


def test_steps_expected_twice_are_left_out_once() -> None:
    """Plans and orders overlap."""
    left_out = LeftOut(Timing())
    for ranges in ([(5, 6), (8, 9)], [(3, 10)], [(0, 4), (9, 12)]):
        left_out.expect(ranges)
    covered = [step for step in range(14) if left_out.captured.at(step) is not None]
    assert list(range(12)) == covered


def test_a_fault_of_ours_does_not_end_the_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on; the tree stays whole."""
    timing = Timing()
    left_out = LeftOut(timing)
    monkeypatch.setattr(timing, "to_dict", lambda *_: 1 // 0)
    left_out.mark(True)
    (message,) = caplog.messages
    assert message == (
        "cannot separate profiled steps in the timing tree: "
        "ZeroDivisionError: integer division or modulo by zero"
    )

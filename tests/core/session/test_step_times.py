"""The sentence on what profiling costs: nothing, or no percentage, where that would be noise."""

from __future__ import annotations

from contextlib import suppress

import pytest
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._artifacts.rows import of_workers
from gpuprof._session.file import SessionFile
from gpuprof._session.step_times import StepOutside, StepTimes
from support.run_files import session_file


@pytest.mark.parametrize(
    "times",
    [
        StepTimes(),
        StepTimes(inside=1.0, count_inside=5),
        StepTimes(outside=1.0, count_outside=5),
        StepTimes(2.4, 6.0, 2, 6),
        StepTimes(6.0, 2.4, 6, 2),
    ],
)
def test_with_fewer_than_three_steps_on_a_side_nothing_is_said(times: StepTimes) -> None:
    """As where all steps are captured, or none was."""
    assert "" == str(times)


@pytest.mark.parametrize(
    ("inside", "outside", "itself"),
    [
        (0.9, 0.6, "0.30 s itself (+50 %), 1.14 s to open and close the window; others 0.20 s"),
        (0.036, 0.03, "12 ms itself (+20 %), 1.14 s to open and close the window; others 10 ms"),
        (0.036, 0.027, "12 ms itself, 1.14 s to open and close the window; others 9000 µs"),
        (0.6, 0.9, "0.20 s itself, 1.14 s to open and close the window; others 0.30 s"),
    ],
)
def test_opening_and_closing_count(inside: float, outside: float, itself: str) -> None:
    """A percentage wants steps of at least 10 ms, and captured ones that are the longer ones."""
    total = {0.9: "1.44 s", 0.036: "1.15 s", 0.6: "1.34 s"}[inside]
    assert f"a captured step took {total}: {itself}" == str(
        StepTimes(inside, outside, 3, 3, 3 * 1.14)
    )


def test_a_step_that_raises_does_not_count() -> None:
    """It may have ended at any point; nor does the first one."""
    times = StepTimes()
    step = StepOutside(times)
    for error in (None, ValueError, None):
        with suppress(ValueError), step:
            if error is not None:
                raise error
    assert 1 == times.count_outside


def test_the_steps_of_all_workers_count_together() -> None:
    """Of every start on every node; one that has left no word of its steps is passed over."""

    def node(name: str, *sessions: SessionFile | None) -> NodeRecord:
        starts = tuple(
            Start("A", rank, "1", session, None) for rank, session in enumerate(sessions)
        )
        return NodeRecord(name, f"/out/run/{name}", starts, {})

    first, second = StepTimes(1.0, 2.0, 1, 2, 0.5), StepTimes(0.5, 4.0, 3, 4, 2.0)
    total = of_workers(
        [
            node("n0", session_file(step_times=first.to_dict()), None),
            node("n1", session_file(), session_file(step_times=second.to_dict())),
        ],
    )
    assert StepTimes(1.5, 6.0, 4, 6, 2.5).to_dict() == total.to_dict()


def test_the_receipt_ends_with_it() -> None:
    """In a line of its own, behind the total."""
    said = str(StepTimes(2.4, 2.0, 3, 3))
    assert said == Receipt((), "/out/run", overhead=said).table().splitlines()[-1]

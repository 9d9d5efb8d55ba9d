"""The sentence on step times: empty or without a percentage if that would be noise."""

from __future__ import annotations

import pytest
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import NodeRecord, Start
from gpuprof._artifacts.rows import of_workers
from gpuprof._session.file import SessionFile
from gpuprof._session.step_times import StepTimes
from support.run_files import session_file


@pytest.mark.parametrize(
    "times",
    [StepTimes(), StepTimes(inside=1.0, count_inside=5), StepTimes(outside=1.0, count_outside=5)],
)
def test_without_steps_on_both_sides_nothing_is_said(times: StepTimes) -> None:
    """As where all steps are captured, or none was."""
    assert "" == str(times)


@pytest.mark.parametrize(
    ("inside", "outside", "count", "expected"),
    [
        (
            0.036,
            0.030,
            3,
            "a step took 0.012 s inside windows (3 of them) and 0.010 s outside (3): +20.0 %",
        ),
        (0.036, 0.027, 3, "a step took 0.012 s inside windows (3 of them) and 9000 µs outside (3)"),
        (0.027, 0.036, 3, "a step took 9000 µs inside windows (3 of them) and 0.012 s outside (3)"),
        (2.4, 2.0, 2, "a step took 1.200 s inside windows (2 of them) and 1.000 s outside (2)"),
    ],
)
def test_a_percentage_wants_steps_that_are_long_and_many(
    inside: float, outside: float, count: int, expected: str
) -> None:
    """Fewer than three steps of 10 ms on each side are noise."""
    assert expected == str(StepTimes(inside, outside, count, count))


def test_the_steps_of_all_workers_count_together() -> None:
    """Of every start on every node; one that has left no word of its steps is passed over."""

    def node(name: str, *sessions: SessionFile | None) -> NodeRecord:
        starts = tuple(
            Start("A", rank, "1", session, None) for rank, session in enumerate(sessions)
        )
        return NodeRecord(name, f"/out/run/{name}", starts, {})

    first, second = StepTimes(1.0, 2.0, 1, 2), StepTimes(0.5, 4.0, 3, 4)
    total = of_workers(
        [
            node("n0", session_file(step_times=first.to_dict()), None),
            node("n1", session_file(), session_file(step_times=second.to_dict())),
        ],
    )
    assert {"inside": 1.5, "outside": 6.0, "count_inside": 4, "count_outside": 6} == total.to_dict()


def test_the_receipt_ends_with_it() -> None:
    """In a line of its own, behind the total."""
    said = str(StepTimes(2.4, 2.0, 2, 2))
    assert said == Receipt((), "/out/run", overhead=said).table().splitlines()[-1]

"""The watchdog: when a silence of the whole run is an alarm."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof._session import stall
from gpuprof._session.dump import progress
from gpuprof._session.stall import INTERVAL, StallWatch
from gpuprof._session.stall import Progress as Far
from gpuprof_timing import Timing
from support.manual_clock import Clock

Alarms = list[tuple[str, int]]


class Job:
    """Processes of a run, seen every `INTERVAL` by a clock that only moves when it is told to."""

    def __init__(self, directory: Path, processes: int, step: float) -> None:
        self.now, self.alarms = 0.0, Alarms()
        (directory / "run.json").touch()
        self.far = [Far(0, step, True)] * processes
        self.watches = [
            StallWatch(
                str(directory),
                str(directory),
                lambda number=number: self.far[number],  # type: ignore[misc]
                None,
                lambda _, number, seconds, __: self.alarms.append((seconds, number)),
                lambda: self.now,
            )
            for number in range(processes)
        ]

    def go_on(self, seconds: float, *ending: int) -> None:
        """Let time pass, in which these processes end scopes."""
        until = self.now + seconds
        while self.now < until:
            self.now += INTERVAL
            for number in ending:
                self.far[number] = self.far[number]._replace(ended=self.far[number].ended + 1)
            for watch in self.watches:
                watch.look()


@pytest.mark.parametrize(("step", "silence"), [(0.1, 50), (10.0, 290)])
def test_a_silence_that_may_be_work_is_no_alarm(
    tmp_path: Path, step: float, silence: float
) -> None:
    """A minute, or an evaluation as long as 20 steps."""
    job = Job(tmp_path, 2, step)
    job.go_on(100, 0, 1)
    job.go_on(silence)
    assert [] == job.alarms


def test_a_silence_of_all_is_one_alarm(tmp_path: Path) -> None:
    """Of one process, with how long it has lasted."""
    job = Job(tmp_path, 3, 0.1)
    job.go_on(100, 0, 1, 2)
    job.go_on(80)
    assert [("70 s; the longest scope before took 0.1 s", 1)] == job.alarms


def test_a_process_that_goes_on_is_enough(tmp_path: Path) -> None:
    """The others may wait for it."""
    job = Job(tmp_path, 3, 0.1)
    job.go_on(100, 0, 1, 2)
    job.go_on(1000, 2)
    assert [] == job.alarms


def test_the_longest_scope_of_any_process_counts(tmp_path: Path) -> None:
    """One process knows how long an evaluation takes."""
    job = Job(tmp_path, 2, 0.1)
    job.far[1] = Far(0, 100.0, True)
    job.go_on(100, 0, 1)
    job.far[1] = Far(job.far[1].ended, 0.1, True)
    job.go_on(2900)
    assert [] == job.alarms


def test_a_threads_life_is_no_scope_that_takes_long() -> None:
    """Nor is anything expected to end while a thread lives."""
    clock = Clock()
    timing = Timing("t", clock=clock)
    with timing.time_avg("step"):
        clock.advance(2)
    with timing.time_avg("fetch (thread)"):
        clock.advance(400)
    with timing.time_avg("serve (thread)"):
        assert Far(ended=2, longest=2.0, inside=False) == progress(clock, 0)


def test_nothing_is_expected_where_no_scope_is_open(tmp_path: Path) -> None:
    """As in a notebook between two cells."""
    job = Job(tmp_path, 1, 0.1)
    job.go_on(100, 0)
    job.far[0] = job.far[0]._replace(inside=False)
    job.go_on(1000)
    assert [] == job.alarms


def test_what_a_process_does_for_the_first_time_may_take_minutes(tmp_path: Path) -> None:
    """Its first step may compile, while others wait for it; after ten minutes that is one alarm."""
    job = Job(tmp_path, 2, 0.1)
    job.go_on(100, 0, 1)
    job.go_on(40)
    job.far[1] = job.far[1]._replace(first=True)
    job.go_on(600)
    assert [] == job.alarms
    job.go_on(10_000)
    assert [("610 s; the longest scope before took 0.1 s", 1)] == job.alarms


def test_the_first_call_of_a_run_may_hang(tmp_path: Path) -> None:
    """Nothing has ever ended: after ten minutes that is one alarm."""
    job = Job(tmp_path, 2, 0.0)
    job.go_on(600)
    assert [] == job.alarms
    job.go_on(10_000)
    assert [("610 s; no scope has ended before", 1)] == job.alarms


def test_a_node_without_the_runs_directory_makes_no_alarm(tmp_path: Path) -> None:
    """It does not see what ends on the others."""
    job = Job(tmp_path, 1, 0.1)
    job.go_on(100, 0)
    (tmp_path / "run.json").unlink()
    job.go_on(1000)
    assert [] == job.alarms


def test_what_has_ended_once_is_expected_to_end_again(tmp_path: Path) -> None:
    """The mark of a process's first time goes with it."""
    job = Job(tmp_path, 1, 0.1)
    job.far[0] = job.far[0]._replace(first=True)
    job.go_on(100)
    job.far[0] = job.far[0]._replace(first=False, ended=1)
    job.go_on(100)
    assert [1] == [number for _, number in job.alarms]


def test_there_are_three_alarms_at_most(tmp_path: Path) -> None:
    """Each after twice the silence of the one before."""
    job = Job(tmp_path, 2, 0.1)
    job.go_on(100, 0, 1)
    job.go_on(10_000)
    assert [1, 2, 3] == [number for _, number in job.alarms]


def test_an_interrupted_report_is_none(tmp_path: Path) -> None:
    """`explain` would say that it tells what each process did."""
    (tmp_path / "stall-1.txt").write_text("rank 1 (Worker-1) is in flush\n")
    (tmp_path / "stall-2.txt").touch()
    assert 1 == len(stall.reports(str(tmp_path)))
    assert "rank 1 (Worker-1) is in flush" == stall.last_sentence(str(tmp_path))

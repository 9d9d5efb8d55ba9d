"""Running jobs: the last steps, read from ledgers that grow."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof._analysis.live import (
    SILENT,
    STEPS,
    Doing,
    Live,
    Slowest,
    doing,
    phases,
    silent,
    slowest,
    written,
)
from gpuprof._analysis.reading import read
from gpuprof._analysis.run import Run
from support.made_ledgers import BEGAN, MadeLedger

SECOND = 10**9


class Growing:
    """A job of two ranks, whose ledgers grow by a step at a time.

    A step takes a second, of which rank 0 trains for 0.4 s, and rank 1 for 0.6 s.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ledgers = [MadeLedger(directory, "Trainer", rank) for rank in range(2)]
        for ledger in self.ledgers:
            ledger.place("train")
            ledger.track()
        self.steps = 0

    def grow(self, steps: int) -> None:
        """Add steps."""
        for number in range(self.steps, self.steps + steps):
            start = number * SECOND
            for rank, ledger in enumerate(self.ledgers):
                ledger.step(number, start, start + SECOND)
                ledger.spans([(1, 1, start, start + (4 + 2 * rank) * SECOND // 10)])
        self.steps += steps
        self.write()

    def write(self, lost: int = 0) -> None:
        """Write the files, without so many bytes at their ends."""
        for ledger in self.ledgers:
            ledger.path.parent.mkdir(parents=True, exist_ok=True)
            ledger.path.write_bytes(ledger.content[: len(ledger.content) - lost])


@pytest.fixture
def job(tmp_path: Path) -> Growing:
    """A job that has not begun."""
    return Growing(tmp_path / "run")


def seen(live: Live) -> Run:
    """The run as of now."""
    run = live.look()
    assert run is not None
    return run


def test_nothing_is_seen_before_the_first_ledger(job: Growing) -> None:
    """The command then waits."""
    assert Live(job.directory).look() is None


def test_the_last_steps_count(job: Growing) -> None:
    """However many looks it took, and whatever was forgotten between them."""
    live = Live(job.directory)
    for _ in range(50):
        job.grow(5)
        run = seen(live)
    assert [*range(250 - STEPS, 250)] == [run.steps[position].number for position in run.usual]
    assert [1.0] * 250 == live.durations


def test_memory_does_not_grow_with_the_run(job: Growing) -> None:
    """Rows of old steps are forgotten."""
    live = Live(job.directory)
    for _ in range(50):
        job.grow(5)
        run = seen(live)
    assert max(len(process.ledger.spans) for process in run.processes) < 100


def test_one_look_at_a_long_run_is_the_same_answer(job: Growing) -> None:
    """As if every step had been watched."""
    live = Live(job.directory)
    for _ in range(25):
        job.grow(10)
        watched = seen(live)
    at_once = seen(Live(job.directory))
    assert slowest(at_once, "Trainer") == slowest(watched, "Trainer")
    assert phases(at_once, at_once.usual[-1], "Trainer") == [("train", 0.5)]
    assert phases(watched, watched.usual[-1], "Trainer") == [("train", 0.5)]


def test_a_step_that_is_half_written_is_seen_later(job: Growing) -> None:
    """A process may be writing while its file is read."""
    live = Live(job.directory)
    job.grow(3)
    job.write(lost=5)
    seen(live)
    job.write()
    assert len(read(job.directory).processes[0].ledger.spans) == len(
        seen(live).processes[0].ledger.spans
    )


def test_the_slowest_rank_is_compared_with_the_others(job: Growing) -> None:
    """By its work in a step."""
    job.grow(12)
    assert Slowest("Trainer-1", 0.6, 0.4) == slowest(seen(Live(job.directory)), "Trainer")


def test_the_innermost_open_scope_is_what_a_process_does(job: Growing) -> None:
    """Without scopes around whole steps."""
    inner = job.ledgers[1].place("train", "wait")
    job.ledgers[0].still_open([(1, 0)])
    job.ledgers[1].still_open([(1, 12 * SECOND), (inner, 13 * SECOND)])
    job.grow(12)
    run = seen(Live(job.directory))
    now = BEGAN / SECOND + 20
    assert [Doing(run.processes[1], "train/wait", 7.0)] == doing(run, now)


def test_a_process_that_records_nothing_is_silent(job: Growing) -> None:
    """One that is idle notes its clocks."""
    job.grow(12)
    run = seen(Live(job.directory))
    last = BEGAN / SECOND + 12
    assert [] == silent(run, last + SILENT)
    assert [process.name for process, _ in silent(run, last + SILENT + 1)] == [
        "Trainer-0",
        "Trainer-1",
    ]


def test_a_step_that_a_rank_has_yet_to_write_does_not_count(job: Growing) -> None:
    """In it the rank would seem to have done nothing."""
    job.grow(12)
    fast = job.ledgers[0]
    fast.step(12, 12 * SECOND, 13 * SECOND)
    fast.spans([(1, 1, 12 * SECOND, 12 * SECOND + 4 * SECOND // 10)])
    job.write()
    run = seen(Live(job.directory))
    assert (12, 11) == (run.steps[run.usual[-1]].number, run.steps[written(run)[-1]].number)

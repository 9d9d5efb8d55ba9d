"""Ranks that become slow while a job runs, on ledgers of jobs that never ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gpuprof._analysis import reading
from gpuprof._analysis.trigger import suspect
from support.simulated_run import SimulatedLedger, write_run

MS = 1_000_000
RANKS, STEPS, ONSET = 8, 60, 30
Times = Callable[[int, int], float]
"""Milliseconds that a rank takes in ``forward`` in a step."""


def job(directory: Path, forward: Times, ranks: int = RANKS, steps: int = STEPS) -> Path:
    """A job whose ranks mark their own steps, and wait for each other at the end of each."""
    ledgers = [SimulatedLedger(f"Trainer-{rank}") for rank in range(ranks)]
    noise = np.random.default_rng(0).normal(1, 0.02, (steps, ranks))
    now = 0
    for step in range(steps):
        works = [int(forward(step, rank) * noise[step, rank] * MS) for rank in range(ranks)]
        end = now + max(works) + 20 * MS
        for ledger, work in zip(ledgers, works, strict=True):
            ledger.span("forward", now, now + work)
            ledger.span("barrier", now + work, end, waits_for="barrier")
            ledger.step(step, now, end)
        now = end
    return write_run(directory / "run", ledgers)


def slow(step: int, rank: int) -> float:
    """Rank 3 takes 1.5 times as long from a step on."""
    return 150 if rank == 3 and step >= ONSET else 100


def test_a_rank_that_becomes_slow_is_a_suspect(tmp_path: Path) -> None:
    """With the scope, and a healthy rank to compare it with."""
    found = suspect(reading.read(job(tmp_path, slow)))
    assert found is not None
    assert ("Trainer-3", "forward", 7) == (found.worker, found.scope, found.peers)
    assert found.peer not in ("", "Trainer-3")


@pytest.mark.parametrize("ranks", [4, 32])
def test_three_slow_steps_are_enough(ranks: int, tmp_path: Path) -> None:
    """Where ranks varied by 2 % before, half as long again is no chance."""
    run = job(tmp_path, lambda step, rank: 10 * slow(step, rank), ranks, steps=ONSET + 3)
    found = suspect(reading.read(run))
    assert found is not None
    assert ("Trainer-3", "forward", 3, 3) == (
        found.worker,
        found.scope,
        found.slowest,
        found.steps,
    )


def test_two_slow_steps_are_not_enough(tmp_path: Path) -> None:
    """They may be two pauses."""
    run = job(tmp_path, lambda step, rank: 10 * slow(step, rank), steps=ONSET + 2)
    assert suspect(reading.read(run)) is None


def test_short_steps_must_have_been_slow_for_a_while(tmp_path: Path) -> None:
    """Three steps of 150 ms are over before a profiler looks."""
    assert suspect(reading.read(job(tmp_path, slow, steps=ONSET + 3))) is None


def test_a_rank_that_is_slow_from_the_beginning_is_a_suspect(tmp_path: Path) -> None:
    """It was never faster, but the others are."""
    run = reading.read(job(tmp_path, lambda step, rank: 150 if rank == 3 else 100, steps=20))
    found = suspect(run)
    assert found is not None
    assert ("Trainer-3", "forward") == (found.worker, found.scope)


@pytest.mark.parametrize(("slow_ranks", "is_found"), [({2: 200}, True), ({0: 160, 2: 200}, False)])
def test_half_of_the_ranks_are_no_suspects(
    slow_ranks: dict[int, int], is_found: bool, tmp_path: Path
) -> None:
    """The others may be the unusual ones."""
    run = job(tmp_path, lambda _, rank: slow_ranks.get(rank, 100), 4, 32)
    assert is_found == (suspect(reading.read(run)) is not None)


@pytest.mark.parametrize(("quick", "is_found"), [(None, True), (9, False)])
def test_few_steps_tell_of_a_rank_that_is_the_slowest_in_each(
    quick: int | None, is_found: bool, tmp_path: Path
) -> None:
    """In one of them it is not: on a busy machine, chance does as much."""

    def forward(step: int, rank: int) -> float:
        return 100 if rank != 3 or step == quick else 150

    run = job(tmp_path, forward, steps=18)
    assert is_found == (suspect(reading.read(run)) is not None)


def test_a_known_rank_is_no_suspect_again(tmp_path: Path) -> None:
    """Its report exists."""
    assert suspect(reading.read(job(tmp_path, slow)), known=["Trainer-3"]) is None


def test_steps_before_a_time_do_not_count(tmp_path: Path) -> None:
    """As those that a capture has slowed."""
    run = reading.read(job(tmp_path, slow))
    assert suspect(run, since=run.steps[-5].start) is None


def test_before_any_step_counts_nobody_is_a_suspect(tmp_path: Path) -> None:
    """As just after a capture."""
    run = reading.read(job(tmp_path, slow))
    assert suspect(run, since=run.steps[-1].end) is None


@pytest.mark.parametrize(("captured", "is_found"), [(range(12, 16), True), (range(0), False)])
def test_captured_steps_are_no_baseline(captured: range, is_found: bool, tmp_path: Path) -> None:
    """A profiler made them slow; had they been slow without one, the rank would vary that much."""

    def forward(step: int, rank: int) -> float:
        return 10 * (300 if rank == 3 and step in range(12, 16) else slow(step, rank))

    run = reading.read(job(tmp_path, forward, steps=ONSET + 3))
    reading.mark(run, [reading.Captured(captured, None)])
    assert is_found == (suspect(run) is not None)


@pytest.mark.parametrize(
    "forward",
    [
        pytest.param(lambda step, rank: 100 + 4 * step, id="longer responses"),
        pytest.param(lambda step, rank: 1500 if step % 10 == 9 else 100, id="evaluations"),
        pytest.param(lambda step, rank: 900 if rank == 0 and step % 10 == 9 else 100,
                     id="checkpoints"),
        pytest.param(lambda step, rank: 900 if (step, rank) in ((20, 3), (50, 3)) else 100,
                     id="pauses"),
        pytest.param(lambda step, rank: 104 if rank == 3 else 100, id="a little slower"),
        pytest.param(lambda step, rank: 600 if rank == 3 and step > 20 and step % 2 else 100,
                     id="often"),
        pytest.param(lambda step, rank: 150 if rank == step % RANKS else 100, id="by turns"),
    ],
)  # fmt: skip
def test_nobody_is_a_suspect(forward: Times, tmp_path: Path) -> None:
    """Where all ranks take longer, or one does so in some steps, or by little."""
    assert suspect(reading.read(job(tmp_path, forward))) is None

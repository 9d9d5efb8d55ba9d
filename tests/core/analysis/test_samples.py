"""The samples of a run, joined over its processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpuprof._analysis.reading import read
from gpuprof._analysis.run import Run
from gpuprof._analysis.samples import Samples
from support.made_ledgers import MadeLedger
from support.simulated_run import EPOCH, SimulatedLedger, write_run

SECOND = 10**9


class Job:
    """A driver with two steps of ten seconds, and two workers."""

    def __init__(self) -> None:
        self.driver = SimulatedLedger("Runner", "driver")
        self.workers = [SimulatedLedger(f"A-{rank}") for rank in range(2)]
        for number in range(2):
            self.driver.step(number, number * 10 * SECOND, (number + 1) * 10 * SECOND)
        for worker in self.workers:
            worker.span("work", 0, 20 * SECOND)

    def sample(
        self, rank: int, sample: str, phase: str, start: float, end: float | None, **notes: float
    ) -> None:
        """A phase in a worker, in seconds."""
        self.workers[rank].sample(
            sample,
            phase,
            int(start * SECOND),
            None if end is None else int(end * SECOND),
            **notes,
        )

    def read(self, directory: Path) -> Run:
        """What it has left."""
        return read(write_run(directory, [self.driver, *self.workers]), 0)


@pytest.fixture
def job() -> Job:
    return Job()


def rows(samples: Samples) -> list[tuple[str, str, int, float, float]]:
    """Id, phase, process, start and end in seconds, by start."""
    return [
        (
            samples.ids[sample],
            samples.names[phase],
            process,
            *((time - EPOCH) / SECOND for time in t),
        )
        for sample, phase, process, *t in zip(
            samples.sample, samples.phase, samples.process, samples.start, samples.end, strict=True
        )
    ]


def lives(samples: Samples) -> list[tuple[str, int]]:
    """Each sample with the number of its phases, in order of their beginnings."""
    counts: dict[int, int] = {}
    for sample in samples.sample.tolist():
        counts[sample] = counts.get(sample, 0) + 1
    return [(samples.ids[sample], count) for sample, count in counts.items()]


def test_a_sample_has_its_phases_of_all_processes(job: Job, tmp_path: Path) -> None:
    """Joined by its id, in order of their start."""
    job.sample(1, "a", "reward", 4, 5)
    job.sample(0, "a", "generate", 1, 4)
    samples = job.read(tmp_path).samples
    assert [("a", "generate", 0, 1.0, 4.0), ("a", "reward", 1, 4.0, 5.0)] == rows(samples)
    assert [("a", 2)] == lives(samples)


def test_a_queued_sample_waits_until_its_next_phase(job: Job, tmp_path: Path) -> None:
    """Which begins in another process: nobody has to end it."""
    job.sample(0, "a", "queued", 0, 0.1)
    job.sample(1, "a", "generate", 3, 4)
    assert ("a", "queued", 0, 0.0, 3.0) == rows(job.read(tmp_path).samples)[0]


def test_what_never_ended_says_so(job: Job, tmp_path: Path) -> None:
    """It lasts until its process's last record."""
    job.sample(0, "a", "generate", 1, 4)
    job.sample(0, "b", "generate", 2, None)
    samples = job.read(tmp_path).samples
    assert [True, False] == samples.ended.tolist()
    assert ("b", "generate", 0, 2.0, 20.0) == rows(samples)[1]


def test_a_phase_that_ended_after_it_was_written_counts_once(tmp_path: Path) -> None:
    """The later row has its end."""
    made = MadeLedger(tmp_path)
    made.step(0, 0, 10 * SECOND)
    made.sample("a", "generate", 0, None)
    made._phases = 0  # the same phase
    made.sample("a", "generate", 0, 5 * SECOND)
    made.write()
    samples = read(tmp_path).samples
    assert [True] == samples.ended.tolist()


def test_notes_are_those_of_their_phases(job: Job, tmp_path: Path) -> None:
    """NaN where none was noted."""
    job.sample(0, "a", "generate", 1, 4, tokens=512, version=3)
    job.sample(1, "a", "reward", 4, 5)
    samples = job.read(tmp_path).samples
    np.testing.assert_equal([512.0, np.nan], samples.notes["tokens"])
    np.testing.assert_equal([3.0, np.nan], samples.notes["version"])


def test_steps_of_a_phase_are_known(job: Job, tmp_path: Path) -> None:
    """Those in which it begins and ends; after the last step there is none."""
    job.sample(0, "a", "generate", 1, 12)
    job.sample(1, "b", "generate", 11, 21)
    samples = job.read(tmp_path).samples
    assert ([0, 1], [1, -1]) == (samples.first_step.tolist(), samples.last_step.tolist())


def test_an_id_that_is_used_again_in_another_step_is_another_sample(
    job: Job, tmp_path: Path
) -> None:
    """Many jobs number the samples of each batch from 0."""
    for step in (0, 10):
        job.sample(0, "0", "generate", step + 1, step + 2)
        job.sample(1, "0", "reward", step + 3, step + 4)
    assert [("0", 2), ("0", 2)] == lives(job.read(tmp_path).samples)


def test_turns_of_a_sample_that_cross_a_step_are_one_sample(job: Job, tmp_path: Path) -> None:
    """Beside training, a step may end while a sample is under way."""
    job.sample(0, "7", "generate", 1, 9)
    job.sample(0, "7", "tool", 9, 11)
    job.sample(0, "7", "generate", 11, 12)
    assert [("7", 3)] == lives(job.read(tmp_path).samples)


def test_a_partial_rollout_goes_on_in_another_step(job: Job, tmp_path: Path) -> None:
    """The buffer keeps it in between."""
    job.sample(0, "a", "generate", 1, 2)
    job.sample(0, "a", "buffered", 2, 3)
    job.sample(1, "a", "generate", 11, 12)
    assert [("a", 3)] == lives(job.read(tmp_path).samples)


def test_a_trained_sample_is_over(job: Job, tmp_path: Path) -> None:
    """What comes after it is another one, also in the same step; several ranks may train it."""
    job.sample(0, "a", "generate", 1, 2)
    job.sample(0, "a", "trained", 2, 3)
    job.sample(1, "a", "trained", 2.5, 3.5)
    job.sample(0, "a", "generate", 4, 5)
    assert [("a", 3), ("a", 1)] == lives(job.read(tmp_path).samples)


def test_phases_left_out_count_in_the_totals(tmp_path: Path) -> None:
    """Each process has sums of them."""
    made = MadeLedger(tmp_path)
    made.step(0, 0, 10 * SECOND)
    made.sample("a", "generate", 0, SECOND, {"tokens": 5.0}, weight=8)
    made.sample_fold("generate", 0, 5 * SECOND, 7, 9 * SECOND, {"tokens": 70.0})
    made.write()
    samples = read(tmp_path).samples
    assert (8, 75.0) == (samples.count("generate"), samples.noted("tokens"))
    assert [8] == samples.weight.tolist()


def test_attributes_of_steps_are_added_up_over_ranks(tmp_path: Path) -> None:
    """A buffer is averaged: all ranks see the same one."""
    for rank in range(2):
        made = MadeLedger(tmp_path, rank=rank)
        for number in range(2):
            made.step(number, number * SECOND, (number + 1) * SECOND)
        made.attributes(1, 2 * SECOND, {"tokens": 100.0, "buffer": 4.0 + rank})
        made.write()
    attributes = read(tmp_path).attributes
    np.testing.assert_equal([np.nan, 200.0], attributes["tokens"])
    np.testing.assert_equal([np.nan, 4.5], attributes["buffer"])


def test_a_run_without_samples_has_none(job: Job, tmp_path: Path) -> None:
    """As most runs have."""
    assert 0 == len(job.read(tmp_path).samples)

"""How time would pass if samples took less, and what a run's samples tell by themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpuprof._analysis.explain import Explanation, explain
from gpuprof._analysis.reading import read
from gpuprof._analysis.rollouts import _by_rounds
from gpuprof._analysis.samples import Samples
from gpuprof._analysis.stays import Stays
from support.simulated_run import SimulatedLedger, write_run

MS = 10**6
STEPS = 12


def beside(versions_behind: int, late: int = 0, noted: bool = True) -> list[SimulatedLedger]:
    """A trainer's steps of 10 ms, and a sample for each that is generated before it.

    Args:
        late: milliseconds that the trainer waits for each sample.
        noted: whether the phases of samples are.
    """
    worker, trainer = SimulatedLedger("Rollout-0"), SimulatedLedger("Trainer-0")
    length = 10 + late
    for step in range(STEPS):
        begin = (step + 1) * length * MS
        trained = begin + late * MS
        name, key = str(step), f"item:{step}"
        worker.span("decode", begin - 8 * MS, trained, releases=[key])
        if noted:
            version = step - versions_behind
            worker.sample(name, "generate", begin - 8 * MS, trained, version=version)
            trainer.sample(name, "trained", trained, trained + 10 * MS, version=step)
        trainer.step(step, begin, begin + length * MS)
        trainer.span("get", begin, trained, waits_for="Rollout", waits=[key])
        trainer.span("learn", trained, trained + 10 * MS)
    return [worker, trainer]


def answer(ledgers: list[SimulatedLedger], directory: Path) -> Explanation:
    """What is explained of a run."""
    return explain(read(write_run(directory, ledgers), 0))


def test_old_samples_are_a_hint_that_saves_nothing(tmp_path: Path) -> None:
    """They cost no time."""
    [finding] = answer(beside(versions_behind=5), tmp_path).findings
    assert finding.samples is not None
    assert ("stale samples", "hint", 0.0) == (finding.cause, finding.grade, finding.saves)
    assert (5.0, 5.0) == finding.samples.behind


def test_a_trainer_that_waits_for_each_sample_is_starved(tmp_path: Path) -> None:
    """By the share of its time that it waits."""
    [finding] = answer(beside(versions_behind=1, late=10), tmp_path).findings
    assert "starved trainer" == finding.cause
    assert pytest.approx(0.5, abs=0.05) == finding.saves


def test_a_trainer_that_never_waits_is_not_starved(tmp_path: Path) -> None:
    """However long samples take."""
    assert [] == answer(beside(versions_behind=1), tmp_path).findings


@pytest.mark.parametrize(("begin", "causes"), [(-10, ["full buffer"]), (-13, [])])
def test_a_buffer_is_full_if_slots_are_empty_until_a_batch_is_trained(
    begin: int, causes: list[str], tmp_path: Path
) -> None:
    """Slots that are empty between two samples for another reason do not wait for the trainer."""
    worker, trainer = SimulatedLedger("Rollout-0"), SimulatedLedger("Trainer-0")
    for step in range(STEPS):
        trained = 10 * (step + 2) * MS
        since = trained + begin * MS
        for name in (f"{step}/0", f"{step}/1"):
            worker.sample(name, "generate", since, since + 6 * MS)
            worker.sample(name, "buffered", since + 6 * MS, since + 6 * MS)
            trainer.sample(name, "trained", trained, trained + 10 * MS)
        trainer.step(step, trained, trained + 10 * MS)
        trainer.span("learn", trained, trained + 10 * MS)
    findings = answer([worker, trainer], tmp_path).findings
    assert causes == [finding.cause for finding in findings]


@pytest.mark.parametrize(
    "phases",
    [
        ["reward"],
        ["trained"],
        ["buffered", "trained"],
        ["generate"],
        ["generate", "trained"],
        ["reward", "trained"],
        ["generate", "tool", "buffered", "sync"],
    ],
)
@pytest.mark.parametrize("everywhere", [True, False])
def test_any_phases_can_be_explained(phases: list[str], everywhere: bool, tmp_path: Path) -> None:
    """Those of one process or of several, also if some samples never end."""
    ledgers = beside(versions_behind=1, noted=False)
    for step in range(STEPS):
        for number, phase in enumerate(phases):
            ledger = ledgers[0 if everywhere else number % 2]
            begin = (10 * step + number) * MS
            end = None if step == 5 else begin + MS
            ledger.sample(str(step), phase, begin, end, tokens=100, version=step)
    assert answer(ledgers, tmp_path).steps["all"] == STEPS


def test_a_tail_is_named_though_its_worker_is_in_no_scope(tmp_path: Path) -> None:
    """Its samples tell what it does, and which of them the step waits for."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("Worker-0")
    for step in range(STEPS):
        begin, key = 100 * step * MS, f"queue:{step}"
        driver.step(step, begin, begin + 100 * MS)
        driver.span("queue.get", begin, begin + 99 * MS, waits_for="Worker", waits=[key])
        for number in range(24):
            end = begin + (96 if number == 7 else 20) * MS
            worker.sample(f"{step}/{number}", "generate", begin, end, tokens=end - begin)
        worker.span("collect", begin + 96 * MS, begin + 98 * MS, releases=[key])
    explanation = answer([driver, worker], tmp_path)
    assert explanation.confidence.explained > 0.9
    assert [("tail", "named")] == [(f.cause, f.grade) for f in explanation.findings]
    assert pytest.approx(0.76, abs=0.02) == explanation.findings[0].saves


def held(*stays: tuple[int, int]) -> Stays:
    """A worker with these samples."""
    start, end = np.array(stays, np.int64).T
    numbers, zeros = np.arange(len(stays)), np.zeros(len(stays), np.int64)
    return Stays(Samples(), numbers, zeros, start, end, zeros, zeros.astype(float), zeros, numbers)


def test_a_round_ends_with_its_last_sample() -> None:
    """Shortening another one gains nothing."""
    about = held((0, 10), (0, 40))
    before, after = about.clocks(np.array([5.0, 40.0]))[0]
    assert (40, 40) == (before[-1], after[-1])


def test_what_a_round_has_not_gained_by_its_end_was_never_gained() -> None:
    """Else its end, which is where it was, would come later on the path."""
    about = held((0, 10), (0, 20), (0, 40))
    clocks = about.clocks(np.array([5.0, 5.0, 40.0]))
    assert [0, 5, 5, 40] == clocks[0][1].tolist()
    assert [0, 10, 20, 40] == _by_rounds(clocks)[0][1].tolist()


def test_a_sample_begins_when_another_one_ends() -> None:
    """So the shorter one before it brings it forward."""
    about = held((0, 20), (20, 40))
    before, after = about.clocks(np.array([5.0, 20.0]))[0]
    assert (40, 25) == (before[-1], after[-1])


def test_the_time_between_rounds_stays_as_it_is() -> None:
    """Somebody else decides when the next round begins."""
    about = held((0, 20), (100, 120))
    before, after = about.clocks(np.array([10.0, 20.0]))[0]
    assert [(0, 0), (20, 10), (100, 90), (120, 110)] == list(zip(before, after, strict=True))

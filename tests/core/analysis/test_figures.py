"""Typical times and their intervals, on steps whose chance is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpuprof._analysis.figures import Figure, compare, figure, student, wandering
from numpy.typing import NDArray


def steps(seed: int, count: int, correlation: float, noise: float = 0.05) -> NDArray[np.float64]:
    """Steps of a second, each like the one before."""
    random = np.random.default_rng(seed)
    memory, made = random.normal(), np.zeros(count)
    for number in range(count):
        fresh = random.normal()
        memory = correlation * memory + math.sqrt(1 - correlation**2) * fresh
        made[number] = math.exp(noise * memory)
    return made


def test_a_typical_time_is_the_median() -> None:
    """A step that takes a hundred times as long changes nothing."""
    assert 2.0 == figure(np.array([1.0, 2.0, 2.0, 2.0, 300.0])).seconds


def test_what_few_steps_have_counts_by_its_share() -> None:
    """A checkpoint of 8 s in every fourth step costs 2 s a step."""
    assert 2.0 == figure(np.array([0.0, 0.0, 0.0, 8.0] * 10)).seconds


def test_what_no_step_has_takes_no_time() -> None:
    """And nothing is known of its error."""
    assert Figure(0.0, 0.0, 0, 0.0) == figure(np.zeros(40))


def test_no_steps_take_no_time() -> None:
    """All of a run may be left out."""
    assert Figure(0.0, 0.0, 0, 0.0) == figure(np.zeros(0))


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_too_few_steps_tell_nothing_of_how_alike_they_are(count: int) -> None:
    """Each counts in full."""
    assert count == figure(np.arange(1.0, count + 1)).effective


def test_steps_that_are_alike_are_worth_fewer() -> None:
    """At a correlation of 0.9 a step is worth a nineteenth of an independent one."""
    independent, alike = (
        np.median([figure(steps(seed, 400, correlation)).effective for seed in range(20)])
        for correlation in (0.0, 0.9)
    )
    assert (pytest.approx(400, rel=0.1), pytest.approx(400 / 19, rel=0.3)) == (independent, alike)


@pytest.mark.parametrize(("slow", "fast"), [(0.06, 0.05), (0.0, 0.05)])
def test_ranks_tell_together_how_long_their_speeds_wander(slow: float, fast: float) -> None:
    """Beneath noise that hides it, the error of a rank is what runs differ by; without, no more."""
    random = np.random.default_rng(7)
    typical, errors = [], []
    for run in range(40):
        ranks = [
            steps(100 * run + rank, 60, 0.9, slow) * np.exp(random.normal(0, fast, 60))
            for rank in range(4)
        ]
        inflation = wandering(ranks)
        figures = [figure(rank, wandering=inflation) for rank in ranks]
        typical += [math.log(each.seconds) for each in figures]
        errors += [each.error for each in figures]
    assert pytest.approx(np.std(typical), rel=0.35) == np.mean(errors)
    assert np.mean(errors) > 0.9 * np.std(typical)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.9])
def test_intervals_cover_what_they_promise(correlation: float) -> None:
    """Of equal runs of 40 steps that differ by the usual spread, at most one in ten is left out."""
    random = np.random.default_rng(5)
    covered = 0
    for seed in range(100):
        one, other = (
            figure(steps(1000 * seed + side, 40, correlation) * math.exp(random.normal(0, 0.015)))
            for side in range(2)
        )
        change = compare([one], [other])
        covered += change.low <= 1 <= change.high
    assert covered >= 88


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_equal_runs_rarely_look_slower_by_five_percent(correlation: float) -> None:
    """At most one pair in twenty, with runs that differ by twice the usual spread."""
    random = np.random.default_rng(6)
    failed = 0
    for seed in range(100):
        one, other = (
            figure(steps(1000 * seed + side, 40, correlation) * math.exp(random.normal(0, 0.03)))
            for side in range(2)
        )
        failed += compare([one], [other]).low > 1.05
    assert failed <= 5


def test_runs_that_differ_widen_the_interval() -> None:
    """From three runs on their own spread counts."""
    alike = [Figure(seconds, 0.01, 40, 40.0) for seconds in (1.0, 1.001, 0.999, 1.0)]
    apart = [Figure(seconds, 0.01, 40, 40.0) for seconds in (1.0, 1.2, 0.8, 1.04)]
    narrow, wide = (compare(runs, [Figure(1.0, 0.01, 40, 40.0)]) for runs in (alike, apart))
    assert wide.high / wide.low > 1.3 > 1.1 > narrow.high / narrow.low


def test_a_spread_that_is_assumed_is_certain() -> None:
    """Two single runs, whose steps are all alike."""
    one = figure(np.ones(40))
    change = compare([one], [one])
    assert pytest.approx(1.95996 * 0.015 * math.sqrt(2), rel=1e-3) == math.log(change.high)


def test_a_spread_measured_in_three_runs_is_as_uncertain_as_six_are() -> None:
    """Four that the usual spread is worth, and two of their own; errors of steps left aside."""
    runs = [Figure(seconds, 1e-9, 40, 40.0) for seconds in (1.0, 1.0, 1.0)]
    change = compare(runs, [Figure(1.0, 1e-9, 40, 40.0)])
    deviation = 0.015 * math.sqrt(4 / 6) * math.sqrt(1 / 3 + 1)
    assert pytest.approx(2.44691 * deviation, rel=1e-3) == math.log(change.high)


def test_steps_that_are_worth_few_are_less_certain() -> None:
    """Of eleven independent ones in each run the interval is Student's, with 49 degrees."""
    one = Figure(1.0, 0.02, 40, 11.0)
    change = compare([one], [one])
    deviation = math.sqrt(2 * 0.02**2 + 2 * 0.015**2)
    assert pytest.approx(2.0098 * deviation, rel=1e-3) == math.log(change.high)


def test_runs_that_agree_by_chance_promise_no_less_than_the_usual_spread() -> None:
    """Three that are equal, though their steps allow for 5 %, count as three without spread."""
    one = Figure(1.0, 0.05, 1000, 1000.0)
    change = compare([one, one, one], [one])
    deviation = math.sqrt(0.05**2 * (1 / 3 + 1) + 0.015**2 * 4 / 6 * (1 / 3 + 1))
    assert pytest.approx(1.96 * deviation, rel=3e-3) == math.log(change.high)


def test_what_neither_side_has_has_no_ratio() -> None:
    """And takes no time."""
    nothing = Figure(0.0, 0.0, 0, 0.0)
    change = compare([nothing], [nothing])
    assert (0.0, 0.0, True) == (change.before, change.after, math.isnan(change.ratio))


def test_a_new_scope_has_no_ratio() -> None:
    """Nothing is known of what it was before."""
    change = compare([], [Figure(1.0, 0.01, 40, 40.0)])
    assert (0.0, 1.0, True) == (change.before, change.after, math.isnan(change.low))


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.95, 10, 1.81246), (0.995, 150, 2.60900)],
)
def test_quantiles_are_those_of_the_tables(
    probability: float, degrees: float, expected: float
) -> None:
    """As printed in every textbook."""
    assert pytest.approx(expected, rel=1e-3) == student(probability, degrees)

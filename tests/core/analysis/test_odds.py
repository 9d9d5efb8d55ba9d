"""Probabilities: held against their definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from gpuprof._analysis import odds
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 60), st.integers(0, 60), st.integers(2, 50))
def test_a_tail_is_the_sum_of_its_terms(successes: int, trials: int, ranks: int) -> None:
    """Exactly, by fractions."""
    chance = Fraction(1, ranks)
    exact = sum(
        math.comb(trials, each) * chance**each * (1 - chance) ** (trials - each)
        for each in range(successes, trials + 1)
    )
    assert pytest.approx(float(exact), rel=1e-9) == odds.tail(successes, trials, 1 / ranks)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_rejects_as_the_step_down_procedure_does(probabilities: list[float]) -> None:
    """The smallest is compared with a part of the level, and the first that fails ends it."""
    level = 0.05
    rejected = set()
    for rank, position in enumerate(
        sorted(range(len(probabilities)), key=probabilities.__getitem__)
    ):
        if probabilities[position] * (len(probabilities) - rank) >= level:
            break
        rejected.add(position)
    corrected = odds.holm(probabilities)
    assert rejected == {position for position, each in enumerate(corrected) if each < level}


def test_steps_that_do_not_resemble_each_other_count_in_full() -> None:
    """A value that turns each time has nothing of the one before."""
    assert 1.0 == odds.independent_share(np.array([1.0, -1.0] * 10))


def test_steps_that_resemble_each_other_count_less() -> None:
    """One long stretch is hardly more than one event."""
    assert odds.independent_share(np.repeat([0.0, 1.0], 20)) < 0.1


def test_steps_that_resemble_many_before_count_less() -> None:
    """A load that comes and goes, under noise that hides half of it from one step to the next."""
    load, noise = np.repeat([0.0, 1.0, 0.0, 1.0], 10), np.tile([0.4, -0.4, -0.4, 0.4, 0.0], 8)
    assert odds.independent_share(load + noise) < 0.3


@given(st.integers(3, 12), st.integers(4, 30))
def test_who_ranks_first_in_each_row_does_so_as_seldom_as_chance_has_it(of: int, rows: int) -> None:
    """The normal distribution claims no less than the true probability."""
    assert odds.of_ranks(of - 1, of, 1, rows) >= of**-rows

"""The trees of functions on a run's page."""

from __future__ import annotations

import pytest
from gpuprof._analysis import reading
from gpuprof._report.explain import explainer
from gpuprof._report.flames import Flame, flames
from support import stacked_run


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Flame]:
    """Four ranks that crop for 40 ms a step, of which one reads JSON for 30 ms, too."""
    directory = stacked_run.write(tmp_path_factory.mktemp("flames") / "run")
    explaining = explainer(reading.read(directory))
    return flames(explaining.record, explaining.explain().findings)


def test_a_group_has_a_tree_of_functions(drawn: list[Flame]) -> None:
    """The mean of its ranks, below their scope, without the way into it."""
    assert [
        (0, "load", 47.5),
        (1, "crop (train.py:30)", 40.0),
        (1, "loads (json/__init__.py:346)", 7.5),
    ] == [(depth, name, round(1000 * seconds, 1)) for depth, name, seconds in drawn[0].rows]


def test_a_slow_rank_has_what_it_takes_longer(drawn: list[Flame]) -> None:
    """And nothing that all ranks take."""
    assert "A-2, more than the median of A" == drawn[1].name
    assert ["load", "loads (json/__init__.py:346)"] == [name for _, name, _ in drawn[1].rows]


def test_a_rank_has_a_tree_and_what_it_takes_longer(drawn: list[Flame]) -> None:
    """After the groups and the slow ranks; without the second where it takes nothing longer."""
    assert ["A-0", "A-1", "A-2", "A-3"] == [flame.name for flame in drawn[2:]]
    assert [40.0, 40.0, 70.0, 40.0] == [round(1000 * flame.rows[0][2], 1) for flame in drawn[2:]]


def test_the_way_into_a_scope_is_left_out_alike(drawn: list[Flame]) -> None:
    """Of all ranks of a group, so that any two of them can be compared."""
    rows = {flame.name: flame.rows[1][:2] for flame in drawn if flame.whole}
    assert dict.fromkeys(["A", "A-0", "A-1", "A-2", "A-3"], (1, "crop (train.py:30)")) == rows

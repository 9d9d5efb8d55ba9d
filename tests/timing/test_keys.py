"""Keys that are no strings."""

from __future__ import annotations

import enum
import json
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from gpuprof_timing import Timing, set_range_opener
from support.manual_clock import Clock


class Stage(enum.Enum):
    """Of a job that names its scopes in one place."""

    ROLLOUT = 1
    UPDATE = 2


ROLLOUT: Any = Stage.ROLLOUT
UPDATE: Any = Stage.UPDATE


def test_they_are_called_by_their_str() -> None:
    """In the tree and its file; recursion is recognized."""
    clock = Clock()
    timing = Timing("t", clock=clock)
    with timing.add_time(ROLLOUT), timing.add_time(ROLLOUT), timing.timeit(UPDATE):
        clock.advance(1)
    tree = json.loads(json.dumps(timing.to_dict()))
    assert {"Stage.ROLLOUT": 1.0, "Stage.ROLLOUT/Stage.UPDATE": 1.0} == Timing.from_dict(
        tree
    ).metrics()
    assert 2 == tree["children"][0]["count"]


def test_they_are_found_by_themselves() -> None:
    """A key is found by itself and by its `str`; an unknown key is named as given."""
    timing = Timing(clock=iter(range(0, 10**12, 10**9)).__next__)
    with timing.add_time(ROLLOUT):
        pass
    assert [1.0] * 3 == [timing[ROLLOUT], timing["Stage.ROLLOUT"], timing.get(ROLLOUT)]
    assert ROLLOUT in timing
    assert UPDATE not in timing
    assert timing.get(UPDATE) is None
    with pytest.raises(KeyError) as caught:
        timing[UPDATE]
    assert (UPDATE,) == caught.value.args


def test_their_ranges_have_names() -> None:
    """A profiler takes strings only."""
    names: list[object] = []

    def open_range(name: str, crosses_tasks: bool) -> AbstractContextManager[None]:
        names.append(name)
        return nullcontext()

    set_range_opener(open_range)
    try:
        with Timing().add_time(ROLLOUT):
            pass
    finally:
        set_range_opener(None)
    assert ["Stage.ROLLOUT"] == names

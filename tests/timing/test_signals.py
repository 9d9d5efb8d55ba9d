"""Handlers of signals that raise while a scope is entered or left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from gpuprof_timing import Timing, set_range_opener


class Alarm(BaseException):
    """What the handler raises."""


class Interrupting:
    """Raises in one of the calls that scopes make, as a handler of a signal does after a call."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0
        self.times = 0

    def __call__(self, *_: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise Alarm
        return nullcontext()

    def clock(self) -> int:
        self()
        self.times += 1
        return self.times


def enter_and_leave(timing: Timing, make: Callable[[Timing], Any], interrupting: Any) -> None:
    interrupting.calls = 0
    with pytest.raises(Alarm), make(timing):
        pass
    with timing.add_time("later"):
        pass


WAYS: list[Callable[[Timing], Any]] = [
    lambda timing: timing.add_time("a"),
    lambda timing: timing.timeit("a"),
    lambda timing: timing.time_avg("a"),
    lambda timing: timing.add_time("a", device="cuda"),
]


@pytest.mark.parametrize("at", [1, 2], ids=["entered", "left"])
@pytest.mark.parametrize("make", WAYS, ids=["add_time", "timeit", "time_avg", "device"])
def test_later_scopes_lie_where_they_would_have(make: Callable[[Timing], Any], at: int) -> None:
    """After a handler raised at a scope's clock, later scopes do not lie below that scope."""
    interrupting = Interrupting(0)
    timing = Timing("t", clock=interrupting.clock)
    interrupting.at = at
    enter_and_leave(timing, make, interrupting)
    assert "later" in timing.metrics()
    assert {0} == {node.open for node in timing._recording.root.children.values()}


def test_a_scope_interrupted_at_its_end_counts() -> None:
    """The time of a scope that a handler interrupts as it ends is not lost."""
    interrupting = Interrupting(0)
    timing = Timing("t", clock=interrupting.clock)
    interrupting.at = 2
    enter_and_leave(timing, WAYS[0], interrupting)
    assert 1 == timing._recording.root.children["a"].count


def test_an_interrupted_scope_closes_its_range() -> None:
    """A range that was open as the handler raised is closed."""
    open_ranges = []

    class Range:
        def __enter__(self) -> None:
            open_ranges.append(self)

        def __exit__(self, *_: object) -> None:
            open_ranges.remove(self)

    interrupting = Interrupting(0)
    timing = Timing("t", clock=interrupting.clock)
    interrupting.at = 1
    set_range_opener(lambda name, crosses_tasks: Range())
    try:
        enter_and_leave(timing, WAYS[0], interrupting)
    finally:
        set_range_opener(None)
    assert [] == open_ranges


@pytest.mark.parametrize("at", [1, 2], ids=["begin", "end"])
def test_events_on_the_device_that_are_interrupted(at: int) -> None:
    """A handler that raises while an event is recorded leaves no scope open."""
    interrupting = Interrupting(0)
    events = SimpleNamespace(begin=interrupting, end=interrupting, elapsed=lambda pair: 1)
    timing = Timing("t", device_events=events)
    interrupting.at = at
    enter_and_leave(timing, WAYS[3], interrupting)
    assert "later" in timing.metrics()

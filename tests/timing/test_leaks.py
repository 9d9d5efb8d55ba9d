"""Scopes leave nothing in memory, and what they use has as many references as before."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from gpuprof_timing import Timing
from gpuprof_timing._spans import SpanLog
from support.manual_clock import Clock

TIMES = 100_000


def plain(timing: Timing) -> None:
    """Asked for anew each time, one in another."""
    for _ in range(TIMES):
        with timing.add_time("a"), timing.add_time("b"):
            pass


def kept(timing: Timing) -> None:
    """One that is kept, and recursion."""
    scope = timing.add_time("a")
    for _ in range(TIMES):
        with scope, timing.add_time("a"):
            pass


def methods(timing: Timing) -> None:
    """Bound methods, overlapping."""
    for _ in range(TIMES):
        first, second = timing.add_time("a"), timing.add_time("b")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)


def other_kinds(timing: Timing) -> None:
    """Those that end in Python."""
    for _ in range(TIMES // 10):
        with timing.timeit("a"), timing.time_avg("b"), timing.add_time("c", waits_for="data"):
            pass


def exceptions(timing: Timing) -> None:
    """Left by an exception, entered twice, left twice."""
    for _ in range(TIMES // 10):
        scope = timing.add_time("a")
        try:
            with scope:
                scope.__enter__()
        except RuntimeError:
            scope.__exit__(None, None, None)


def recorded(timing: Timing) -> None:
    """With a log of spans that is taken now and then."""
    log = SpanLog(timing._recording.clock)
    log.begin()
    for step in range(TIMES // 100):
        log.mark(step)
        for _ in range(20):
            with timing.add_time("a"), timing.add_time("b"):
                pass
        log.note(step)
        log.take().rows.values()
    log.end()


def million(timing: Timing) -> None:
    """A million scopes in steps of twenty, with a log of spans that is taken each hundred steps."""
    log = SpanLog(timing._recording.clock)
    log.begin()
    for step in range(50_000):
        log.mark(step)
        for _ in range(10):
            with timing.add_time("a"), timing.add_time("b"):
                pass
        log.note(step)
        if step % 100 == 0:
            log.take()
    log.end()
    log.take()


@pytest.mark.exhaustive
def test_a_million_scopes_with_a_ledger_leave_nothing_in_memory() -> None:
    """No block for them: neither for their rows, their steps nor the log itself."""
    timing = Timing("t")
    million(timing)
    before = measured([])
    million(timing)
    assert abs(measured([])[0] - before[0]) < 500


@pytest.mark.parametrize("program", [plain, kept, methods, other_kinds, exceptions, recorded])
def test_scopes_leave_nothing_in_memory(program: Callable[[Timing], None], clock: Clock) -> None:
    """Neither blocks of memory nor references to the tree, its clock, its keys or its types."""
    timing = Timing("t", clock=clock)
    scope: Any = timing.add_time("a")
    program(timing)
    used = [timing._recording, clock, type(scope), type(timing._recording.root), "a", None]
    before = measured(used)
    program(timing)
    after = measured(used)
    # threads of the test runner may hold some more, many blocks and `None`: less than one a scope
    most = [TIMES // 20, *[500] * (len(used) - 1), TIMES // 20]
    assert [0] * len(after) == [
        max(0, abs(now - then) - some) for now, then, some in zip(after, before, most, strict=True)
    ]


def measured(used: list[Any]) -> list[int]:
    """Blocks of memory, and references to each."""
    gc.collect()
    return [sys.getallocatedblocks(), *map(sys.getrefcount, used)]

"""The Chrome trace in ui.perfetto.dev's engine: parsed, nested, with nothing dropped."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from typing import Any

import pytest
from gpuprof_timing import Timing
from hypothesis import given, settings
from hypothesis import strategies as st
from support.manual_clock import Clock
from support.perfetto_engine import TraceProcessor

EPOCH = 1_700_000_000_123_456_789
"""Nanoseconds: a time of day at which floating point has no room for them."""
PARENTS = (
    "SELECT slice.name AS name, parent.name AS parent FROM slice LEFT JOIN slice AS parent "
    "ON parent.id = slice.parent_id"
)
COMPLAINTS = "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'"


@pytest.fixture
def timing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Timing:
    """One that keeps events, on a day that stands still."""
    monkeypatch.setattr(time, "time_ns", lambda: EPOCH)
    return Timing("Learner 0", clock=clock, events=1000)


def opened(timing: Timing) -> TraceProcessor:
    """The trace, as the page opens the file."""
    processor = TraceProcessor(json.dumps(timing.chrome_trace()).encode())
    assert [] == processor.query(COMPLAINTS)
    return processor


def test_names_times_and_nesting(timing: Timing, clock: Clock) -> None:
    """Every scope is a slice inside its parent's, at the clock's whole microseconds."""
    with timing.add_time("step"):
        clock.advance(1)
        with timing.timeit("forward"), timing.time_avg("layer"):
            clock.advance(0.25)
        with timing.add_time("backward"):
            clock.advance(0.5)
    begin = EPOCH // 1000 * 1000
    slices = "SELECT ts, dur, depth, name, category FROM slice ORDER BY ts, depth"
    assert [
        (begin, 1_750_000_000, 0, "step", "gpuprof"),
        (begin + 10**9, 250_000_000, 1, "forward", "gpuprof"),
        (begin + 10**9, 250_000_000, 2, "layer", "gpuprof"),
        (begin + 1_250_000_000, 500_000_000, 1, "backward", "gpuprof"),
    ] == opened(timing).query(slices)


def test_processes_threads_and_tasks(timing: Timing) -> None:
    """The process has the title, and each slice is on its thread's or task's named track."""

    async def work(key: str) -> None:
        with timing.add_time(key):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(asyncio.create_task(work(key), name=f"task {key}") for key in "ab"))

    with timing.add_time("main"):
        asyncio.run(main())
    thread = threading.Thread(target=asyncio.run, args=(work("other"),))
    thread.start()
    thread.join()
    sql = """
        SELECT slice.name AS key, thread.name AS thread, process.name AS process, process.pid AS pid
        FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
        JOIN process USING (upid)
    """
    found = {
        key: (track.split(" (")[0], process, pid)
        for key, track, process, pid in opened(timing).query(sql)
    }
    tracks = {"a": "task a", "b": "task b", "main": "MainThread"}
    assert {key: (track, "Learner 0", os.getpid()) for key, track in tracks.items()} == {
        key: found[key] for key in tracks
    }
    assert {"a", "b", "main", "other"} == set(found)


def test_what_overlaps_is_all_there(timing: Timing, clock: Clock) -> None:
    """Slices keep their length for tasks of one name and for scopes that overlap."""

    async def work(seconds: int) -> None:
        with timing.add_time(f"task {seconds}"):
            await asyncio.sleep(0)
            clock.advance(seconds)

    async def main() -> None:
        await asyncio.gather(
            *(asyncio.create_task(work(seconds), name="worker") for seconds in (1, 2, 4))
        )

    asyncio.run(main())
    first, second = timing.add_time("first"), timing.add_time("second")
    first.__enter__()
    clock.advance(1)
    second.__enter__()
    clock.advance(1)
    first.__exit__(None, None, None)
    clock.advance(2)
    second.__exit__(None, None, None)
    expected = {"task 1": 1, "task 2": 3, "task 4": 7, "first": 2, "second": 3}
    found = opened(timing).query("SELECT name, dur, depth FROM slice")
    assert {(name, seconds * 10**9, 0) for name, seconds in expected.items()} == set(found)


def scopes(least: int) -> st.SearchStrategy[Any]:
    """Scopes in scopes: nanoseconds before what is inside, what is inside, nanoseconds after it."""
    nanoseconds = st.integers(least, least + 3000)
    return st.recursive(
        st.tuples(nanoseconds, st.just([]), nanoseconds),
        lambda inner: st.tuples(nanoseconds, st.lists(inner, max_size=4), nanoseconds),
        max_leaves=12,
    )


def recorded(roots: list[Any], offset: int) -> tuple[TraceProcessor, dict[str, str | None]]:
    """The trace of scopes with a name for each, and what each is inside of."""
    clock, parents = Clock(), dict[str, str | None]()
    timing = Timing(clock=clock, events=1000)
    timing._wall = EPOCH + offset

    def run(scope: Any, parent: str | None) -> None:
        before, inside, after = scope
        name = f"scope {len(parents)}"
        parents[name] = parent
        with timing.add_time(name):
            clock.now += before
            for inner in inside:
                run(inner, name)
            clock.now += after

    for root in roots:
        run(root, None)
    return opened(timing), parents


@settings(max_examples=50, deadline=None)
@given(st.lists(scopes(1000), min_size=1, max_size=3), st.integers(0, 10**6))
def test_what_nests_in_the_tree_nests_in_the_trace(roots: list[Any], offset: int) -> None:
    """Scopes of a microsecond or more nest as opened, and none is dropped."""
    processor, parents = recorded(roots, offset)
    assert parents == dict(processor.query(PARENTS))


@settings(max_examples=50, deadline=None)
@given(st.lists(scopes(0), min_size=1, max_size=3), st.integers(0, 10**6))
def test_short_scopes_are_not_dropped(roots: list[Any], offset: int) -> None:
    """What begins and ends within one microsecond is in the trace."""
    processor, parents = recorded(roots, offset)
    assert set(parents) == {name for name, _ in processor.query(PARENTS)}

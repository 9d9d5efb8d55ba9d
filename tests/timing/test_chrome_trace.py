"""The Chrome trace: checked by hand against the rules of the format, field by field."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
import weakref
from fractions import Fraction
from typing import Any

import pytest
from gpuprof_timing import Timing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.manual_clock import Clock


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> int:
    """The time of day, standing still. Nanoseconds since the epoch."""
    now = 1_700_000_000_123_456_000
    monkeypatch.setattr(time, "time_ns", lambda: now)
    return now


def test_a_trace_satisfies_the_field_rules_of_the_chrome_format(wall: int, clock: Clock) -> None:
    """Every event has the format's fields with their types, and an end."""
    timing = Timing("t", clock=clock, events=10)
    with timing.add_time("a"), timing.timeit("b"), timing.time_avg("c"):
        clock.advance(1)
    trace = json.loads(json.dumps(timing.chrome_trace(), allow_nan=False))
    assert {"traceEvents", "displayTimeUnit", "otherData"} == set(trace)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert type(event["name"]) is str
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert [str] == [type(value) for value in event["args"].values()]
        else:
            assert "X" == event["ph"]
            assert all(
                isinstance(event[name], int | float) and event[name] >= 0 for name in ("ts", "dur")
            )
    assert len(spans(trace)) == 3


def test_a_trace_is_in_microseconds_since_the_epoch(wall: int, clock: Clock) -> None:
    """A clock that starts anywhere is moved to the time of day."""
    clock.now = 77
    timing = Timing("t", clock=clock, events=10)
    clock.advance(2)
    with timing.add_time("a"):
        clock.advance(0.5)
    (span,) = spans(timing.chrome_trace())
    assert "a" == span["name"]
    assert wall / 1000 + 2e6 == span["ts"]
    assert 5e5 == span["dur"]
    assert os.getpid() == span["pid"]


def test_a_trace_names_its_process(clock: Clock) -> None:
    """The title is the process's name."""
    metadata = Timing("Learner 0", clock=clock, events=1).chrome_trace()["traceEvents"]
    assert [("process_name", {"name": "Learner 0"})] == [
        (event["name"], event["args"]) for event in metadata
    ]


def test_every_thread_and_every_task_is_a_track(clock: Clock) -> None:
    """Scopes that overlap lie on tracks of their own, which are named."""
    timing = Timing("t", clock=clock, events=10)

    async def work(key: str) -> None:
        with timing.add_time(key):
            await asyncio.sleep(0)

    async def main() -> None:
        tasks = [asyncio.create_task(work(key), name=f"task {key}") for key in "ab"]
        await asyncio.gather(*tasks)

    with timing.add_time("main"):
        asyncio.run(main())
    thread = threading.Thread(target=asyncio.run, args=(work("thread"),))
    thread.start()
    thread.join()
    trace = timing.chrome_trace()
    tracks = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    named = {span["name"]: tracks[span["tid"]] for span in spans(trace)}
    assert 4 == len(set(named.values()))
    assert "MainThread" == named["main"]
    assert ["task a (MainThread)", "task b (MainThread)"] == [named[key] for key in "ab"]


def tracks_of(timing: Timing) -> list[tuple[str, list[str]]]:
    """The name of each track, and the names of its spans."""
    trace = timing.chrome_trace()
    names = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    return [
        (name, [span["name"] for span in spans(trace) if span["tid"] == number])
        for number, name in names.items()
    ]


def test_tasks_of_one_name_are_tracks_of_their_own(clock: Clock) -> None:
    """Each worker thread keeps one track, also when later threads replace earlier ones."""
    timing = Timing("t", clock=clock, events=100)

    async def work() -> None:
        for key in "ab":
            with timing.add_time(key):
                await asyncio.sleep(0)
                clock.advance(1)

    async def main() -> None:
        for _ in range(2):
            await asyncio.gather(*(asyncio.create_task(work(), name="worker") for _ in range(3)))
            gc.collect()

    asyncio.run(main())
    assert [("worker (MainThread)", ["a", "b"])] * 6 == tracks_of(timing)


def test_threads_are_tracks_by_their_names(clock: Clock) -> None:
    """Threads that reuse an ended thread's number get tracks of their own."""
    timing = Timing("t", clock=clock, events=100)

    def work() -> None:
        for _ in range(2):
            with timing.add_time("load"):
                clock.advance(1)

    for _ in range(20):
        thread = threading.Thread(target=work, name="loader")
        thread.start()
        thread.join()
    assert [("loader", ["load", "load"])] * 20 == tracks_of(timing)


def test_spans_that_overlap_go_to_another_track(clock: Clock) -> None:
    """Spans that overlap without nesting go to a further track of the same name."""
    timing = Timing("t", clock=clock, events=10)
    with timing.add_time("outer"):
        for first, second in ("ab", "cd"):
            scopes = timing.add_time(first), timing.add_time(second)
            for act in (scopes[0].__enter__, scopes[1].__enter__):
                act()
                clock.advance(1)
            for scope in scopes:
                scope.__exit__(None, None, None)
                clock.advance(1)
    assert [("MainThread", ["outer", "a", "c"]), ("MainThread", ["b", "d"])] == tracks_of(timing)


def test_tasks_are_not_kept(clock: Clock) -> None:
    """A task that has ended is collected, though its spans are in the ring."""
    timing = Timing("t", clock=clock, events=10)
    tasks = []

    async def main() -> None:
        tasks.append(weakref.ref(asyncio.current_task()))
        with timing.add_time("a"):
            await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert tasks[0]() is None
    assert 1 == len(spans(timing.chrome_trace()))


def test_what_the_ring_had_no_room_for_is_counted(clock: Clock) -> None:
    """The last scopes are kept, and a reader learns how many are missing."""
    timing = Timing("t", clock=clock, events=2)
    for key in "abcde":
        with timing.add_time(key):
            clock.advance(1)
    trace = timing.chrome_trace()
    assert ["d", "e"] == [span["name"] for span in spans(trace)]
    assert 3 == trace["otherData"]["dropped"]


def test_reset_empties_the_trace(clock: Clock) -> None:
    """A tree that begins anew has no old events, dropped ones included."""
    timing = Timing("t", clock=clock, events=1)
    for _ in range(3):
        with timing.add_time("a"):
            pass
    timing.reset()
    trace = timing.chrome_trace()
    assert [] == spans(trace)
    assert 0 == trace["otherData"]["dropped"]


def test_a_timing_without_events_says_how_to_get_them(timing: Timing) -> None:
    """The error has the argument that was missing."""
    with pytest.raises(
        ValueError, match=r"this Timing keeps no events: make it with Timing\(events=100_000\)"
    ):
        timing.chrome_trace()


def test_recursion_is_one_span(clock: Clock) -> None:
    """Only the outermost call of a recursion has time, so only it is in the trace."""
    timing = Timing("t", clock=clock, events=10)
    with timing.add_time("a"), timing.add_time("a"):
        clock.advance(1)
    assert 1 == len(spans(timing.chrome_trace()))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=3, max_size=12))
@example([1, 85, 1])
def test_spans_of_one_track_nest(nanoseconds: list[int]) -> None:
    """No rounded span ends after the one around it ends or the next one begins."""
    clock = Clock()
    timing = Timing("t", clock=clock, events=100)
    timing._wall = 1_700_000_000_123_456_789
    with timing.add_time("outer"):
        for duration in nanoseconds:
            with timing.add_time("inner"):
                clock.now += duration
    outer, *inner = spans(json.loads(json.dumps(timing.chrome_trace())))
    ends = [Fraction(span["ts"]) + Fraction(span["dur"]) for span in inner]
    assert all(end <= span["ts"] for end, span in zip(ends, inner[1:], strict=False))
    assert ends[-1] <= Fraction(outer["ts"]) + Fraction(outer["dur"])

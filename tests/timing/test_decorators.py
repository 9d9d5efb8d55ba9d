"""Every way of using a scope, what switches scopes off, and what the reports say of them. Times come from an injected clock."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import json
import logging
import os
import pickle
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from fractions import Fraction
from typing import Any

import pytest
from gpuprof_timing import Timing, _timing, annotate
from hypothesis import example, given, settings
from hypothesis import strategies as st

SECOND = 10**9


class Clock:
    """A clock that only moves when it is told to. Nanoseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timing(clock: Clock) -> Timing:
    return Timing("t", clock=clock)


def calls(timing: Timing, key: str) -> int:
    """How often a key at the root was left."""
    return next(node["count"] for node in timing.to_dict()["children"] if node["key"] == key)


# Kinds of functions


def function() -> None:
    pass


async def coroutine() -> None:
    pass


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


QUESTIONS: list[Callable[[object], bool]] = [
    inspect.isfunction,
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
]
KEY_AND_KIND: list[Callable[[Timing], Any]] = [
    lambda timing: timing.add_time("a"),
    lambda timing: timing.timeit("a"),
    lambda timing: timing.time_avg("a", average=3),
    lambda timing: annotate("a"),
]


@pytest.mark.parametrize("make", KEY_AND_KIND, ids=["add_time", "timeit", "time_avg", "annotate"])
@pytest.mark.parametrize("plain", [function, coroutine, generator, async_generator], ids=lambda plain: plain.__name__)
def test_a_decorated_function_stays_what_it_is(timing: Timing, plain: Any, make: Callable[[Timing], Any]) -> None:
    """`inspect` gives the same answers, name, signature and the original included."""
    decorated = make(timing)(plain)
    assert [ask(plain) for ask in QUESTIONS] == [ask(decorated) for ask in QUESTIONS]
    assert (plain.__name__, inspect.signature(plain), plain) == (
        decorated.__name__,
        inspect.signature(decorated),
        decorated.__wrapped__,
    )


def test_methods_of_all_kinds(timing: Timing, clock: Clock) -> None:
    """Methods, class methods and static methods are timed when the decorator stands next to the function."""

    class Worker:
        @timing.add_time("method")
        def method(self) -> type[Worker]:
            clock.advance(1)
            return type(self)

        @classmethod
        @timing.add_time("class")
        def of_class(cls) -> type[Worker]:
            clock.advance(2)
            return cls

        @staticmethod
        @timing.add_time("static")
        def static(value: int) -> int:
            clock.advance(4)
            return value

    assert (Worker, Worker, 3, 3) == (Worker().method(), Worker.of_class(), Worker.static(3), Worker().static(3))
    assert {"method": 1.0, "class": 2.0, "static": 8.0} == dict(timing)


def test_a_property_below_the_decorator(timing: Timing, clock: Clock) -> None:
    """A property's getter is a function like any other."""

    class Worker:
        @property
        @timing.add_time("read")
        def value(self) -> int:
            clock.advance(1)
            return 3

    assert (3, 1.0) == (Worker().value, timing["read"])


def test_a_partial_of_a_coroutine_function(timing: Timing, clock: Clock) -> None:
    """What `inspect` takes for a coroutine function is awaited inside the scope."""

    async def wait(seconds: float) -> float:
        clock.advance(seconds)
        return seconds

    decorated = timing.add_time("a")(functools.partial(wait, 2))
    assert (2, 2.0) == (asyncio.run(decorated()), timing["a"])


def test_arguments_results_and_exceptions_pass(timing: Timing) -> None:
    """Positional and keyword arguments reach the function, what it raises reaches the caller, and the call is counted."""

    @timing.add_time("a")
    def call(*args: int, **kwargs: int) -> tuple[object, ...]:
        if not args:
            raise KeyError("none")
        return args, kwargs

    assert ((1, 2), {"key": 3}) == call(1, 2, key=3)
    with pytest.raises(KeyError, match="none"):
        call()
    assert 2 == calls(timing, "a")


def test_a_decorator_used_in_many_threads(timing: Timing) -> None:
    """Every call is a scope of its own, so concurrent calls of one function do not meet."""
    barrier = threading.Barrier(4, timeout=60)

    @timing.add_time("a")
    def meet() -> None:
        barrier.wait()

    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 4 == calls(timing, "a")


def test_concurrent_calls_of_a_decorated_coroutine_function(timing: Timing, clock: Clock) -> None:
    """Calls that wait at the same time each count what they took."""

    @timing.time_avg("wait", average=10)
    async def wait(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        event = asyncio.Event()
        tasks = [asyncio.create_task(wait(event)) for _ in range(3)]
        await asyncio.sleep(0)
        clock.advance(2)
        event.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert (3, 2.0) == (calls(timing, "wait"), timing["wait"])


def test_a_cancelled_coroutine_is_counted(timing: Timing, clock: Clock) -> None:
    """Cancellation ends the scope and reaches the function."""
    seen = []

    @timing.add_time("wait")
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            clock.advance(1)
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (["cancelled"], 1, 1.0) == (seen, calls(timing, "wait"), timing["wait"])


# Generators


def test_a_generator_is_timed_while_it_runs(timing: Timing, clock: Clock) -> None:
    """What the consumer does between two values is not the generator's time; each resumption is a call."""

    @timing.add_time("produce")
    def produce() -> Iterator[int]:
        for value in range(2):
            clock.advance(1)
            yield value
        clock.advance(3)

    for _ in produce():
        clock.advance(10)
    assert (5.0, 3) == (timing["produce"], calls(timing, "produce"))


def test_what_the_consumer_does_is_not_below_the_generator(timing: Timing) -> None:
    """A suspended generator's scope is not around the consumer's."""

    @timing.add_time("produce")
    def produce() -> Iterator[int]:
        with timing.add_time("inside"):
            pass
        yield 1

    for _ in produce():
        with timing.add_time("consume"):
            pass
    assert ["time/produce", "time/produce/inside", "time/consume"] == list(timing.metrics("time/"))


def test_a_generator_that_never_starts_is_not_timed(timing: Timing) -> None:
    """Making a generator runs none of it."""
    decorated = timing.add_time("a")(generator)
    decorated().close()
    assert {} == dict(timing)


def protocol(log: list[object]) -> Generator[object, object, str]:
    """Answers everything that can be done to a generator."""
    received: object = "started"
    try:
        while received != "stop":
            try:
                received = yield received
            except KeyError as error:
                received = repr(error)
            log.append(received)
    except GeneratorExit:
        log.append("closed")
        raise
    finally:
        log.append("finally")
    return "returned"


def drive(made: Generator[object, object, str], steps: list[tuple[str, int]]) -> list[object]:
    """Everything that a consumer sees."""
    seen: list[object] = []
    actions: dict[str, Callable[[int], object]] = {
        "next": lambda _: next(made),
        "send": made.send,
        "stop": lambda _: made.send("stop"),
        "throw": lambda value: made.throw(KeyError(value)),
        "throw other": lambda value: made.throw(ValueError(value)),
        "throw stop": lambda value: made.throw(StopIteration(value)),
        "close": lambda _: made.close(),
    }
    for action, value in steps:
        try:
            seen.append(actions[action](value))
        except StopIteration as stop:
            seen.append(("end", stop.value))
        except Exception as error:
            seen.append((type(error), str(error), type(error.__cause__)))
    made.close()
    return seen


ACTIONS = st.sampled_from(["next", "send", "send", "throw", "throw other", "throw stop", "close", "stop"])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(ACTIONS, st.integers(1, 3)), max_size=12))
def test_a_decorated_generator_cannot_be_told_from_a_plain_one(steps: list[tuple[str, int]]) -> None:
    """Send, throw, close, values, the return value and what is raised are the same in any order."""
    timing = Timing(clock=lambda: 0)
    plain: list[object] = []
    decorated: list[object] = []
    assert drive(protocol(plain), steps) == drive(timing.add_time("a")(protocol)(decorated), steps)
    assert plain == decorated
    assert all(node["open"] == 0 for node in timing.to_dict()["children"])


def test_closing_a_generator_is_timed(timing: Timing, clock: Clock) -> None:
    """What a generator does in its `finally` when it is closed early is its time."""

    @timing.add_time("produce")
    def produce() -> Iterator[int]:
        try:
            yield 1
        finally:
            clock.advance(2)

    made = produce()
    next(made)
    clock.advance(10)
    made.close()  # type: ignore[attr-defined]
    assert (2.0, 2) == (timing["produce"], calls(timing, "produce"))


def test_a_generator_that_refuses_to_close(timing: Timing) -> None:
    """A generator that goes on when it is closed is told off as a plain one is."""

    @timing.add_time("a")
    def stubborn() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    made = stubborn()
    next(made)
    with pytest.raises(RuntimeError, match="generator ignored GeneratorExit"):
        made.close()  # type: ignore[attr-defined]


def test_yield_from_passes_through(timing: Timing) -> None:
    """A decorated generator can be delegated to, and its result is the value of `yield from`."""
    decorated = timing.add_time("a")(protocol)
    log: list[object] = []

    def outer() -> Generator[object, object, str]:
        return (yield from decorated(log))

    made = outer()
    assert ["started", 7, "KeyError(1)"] == [next(made), made.send(7), made.throw(KeyError(1))]
    with pytest.raises(StopIteration) as stopped:
        made.send("stop")
    assert "returned" == stopped.value.value


def test_a_decorated_context_manager(timing: Timing, clock: Clock) -> None:
    """Below `contextmanager` it is setting up and tearing down that are timed, not the body."""

    @contextlib.contextmanager
    @timing.add_time("manage")
    def manage() -> Iterator[int]:
        clock.advance(1)
        try:
            yield 3
        finally:
            clock.advance(2)

    with pytest.raises(KeyError, match="body"), manage() as value:
        clock.advance(10)
        raise KeyError("body")
    assert (3, 3.0) == (value, timing["manage"])


# Asynchronous generators


def test_an_async_generator_is_timed_while_it_runs(timing: Timing, clock: Clock) -> None:
    """Its own awaiting is its time, the consumer's is not."""

    @timing.add_time("produce")
    async def produce() -> AsyncIterator[int]:
        for value in range(2):
            clock.advance(1)
            await asyncio.sleep(0)
            clock.advance(1)
            yield value

    async def main() -> list[int]:
        values = []
        async for value in produce():
            clock.advance(10)
            values.append(value)
        return values

    assert ([0, 1], 4.0, 3) == (asyncio.run(main()), timing["produce"], calls(timing, "produce"))


async def async_protocol(log: list[object]) -> Any:
    """Answers everything that can be done to an asynchronous generator."""
    received: object = "started"
    try:
        while received != "stop":
            try:
                received = yield received
            except KeyError as error:
                received = repr(error)
            await asyncio.sleep(0)
            log.append(received)
    except GeneratorExit:
        log.append("closed")
        raise
    finally:
        await asyncio.sleep(0)
        log.append("finally")


async def drive_async(made: Any, steps: list[tuple[str, int]]) -> list[object]:
    seen: list[object] = []
    actions: dict[str, Callable[[int], Any]] = {
        "next": lambda _: made.__anext__(),
        "send": made.asend,
        "stop": lambda _: made.asend("stop"),
        "throw": lambda value: made.athrow(KeyError(value)),
        "throw other": lambda value: made.athrow(ValueError(value)),
        "throw stop": lambda value: made.athrow(StopAsyncIteration(value)),
        "close": lambda _: made.aclose(),
    }
    for action, value in steps:
        try:
            seen.append(await actions[action](value))
        except StopAsyncIteration:
            seen.append("end")
        except Exception as error:
            seen.append((type(error), str(error), type(error.__cause__)))
    await made.aclose()
    return seen


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(ACTIONS, st.integers(1, 3)), max_size=12))
def test_a_decorated_async_generator_cannot_be_told_from_a_plain_one(steps: list[tuple[str, int]]) -> None:
    """Asend, athrow, aclose, values and what is raised are the same in any order."""
    timing = Timing(clock=lambda: 0)
    plain: list[object] = []
    decorated: list[object] = []

    async def main() -> None:
        made = timing.add_time("a")(async_protocol)(decorated)
        assert await drive_async(async_protocol(plain), steps) == await drive_async(made, steps)

    asyncio.run(main())
    assert plain == decorated
    assert all(node["open"] == 0 for node in timing.to_dict()["children"])


def test_closing_an_async_generator_is_timed(timing: Timing, clock: Clock) -> None:
    """What it awaits in its `finally` when it is closed early is its time."""

    @timing.add_time("produce")
    async def produce() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            clock.advance(1)
            await asyncio.sleep(0)
            clock.advance(1)

    async def main() -> None:
        made = produce()
        await made.__anext__()
        clock.advance(10)
        await made.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    assert (2.0, 2) == (timing["produce"], calls(timing, "produce"))


# Switched off, strict, too much


def test_switched_off_a_decorator_gives_the_function_back() -> None:
    """Nothing stands between the caller and the function."""
    timing = Timing(enabled=False)
    assert [function] * 3 == [timing.add_time("a")(function), timing.timeit("a")(function), timing.time_avg("a")(function)]


def test_switched_off_nothing_is_recorded() -> None:
    """Scopes of all kinds can be nested, shared and left by exceptions, and leave nothing behind."""
    timing = Timing(enabled=False)
    scope = timing.add_time("a")
    with pytest.raises(KeyError), scope, scope, timing.timeit("b"), timing.time_avg("c"):
        raise KeyError
    assert (False, {}, []) == (bool(timing), dict(timing), timing.to_dict()["children"])


@pytest.mark.parametrize(("value", "expected"), [("0", False), ("1", True), ("", True), (None, True)])
def test_the_environment_switches_off(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool) -> None:
    """`GPUPROF_TIMING=0`, and only that, switches off."""
    monkeypatch.delenv("GPUPROF_TIMING", raising=False)
    if value is not None:
        monkeypatch.setenv("GPUPROF_TIMING", value)
    assert expected == Timing().enabled


def test_the_program_overrules_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Timing` that says what it wants does not ask the environment."""
    monkeypatch.setenv("GPUPROF_TIMING", "0")
    assert (True, False) == (Timing(enabled=True).enabled, Timing(enabled=False).enabled)


def test_a_record_is_read_where_timing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of others are read and merged whatever this process does itself."""
    timing = Timing(clock=iter(range(0, 100 * SECOND, SECOND)).__next__)
    with timing.add_time("a"):
        pass
    data = timing.to_dict()
    monkeypatch.setenv("GPUPROF_TIMING", "0")
    assert (1.0, 1.0) == (Timing.from_dict(data)["a"], Timing.merge([Timing.from_dict(data)])["a"])


def test_strict_raises_where_a_second_kind_is_used() -> None:
    """The error has the place, both kinds and the title, and the scope is not open."""
    timing = Timing("trainer", clock=lambda: 0, strict=True)
    with timing.add_time("train"):
        with timing.add_time("step"):
            pass
        with pytest.raises(ValueError, match="trainer: 'train/step' is shown as add_time, the first use; timeit there is ignored"):
            timing.timeit("step").__enter__()
        with timing.add_time("after"):
            pass
    assert ["train", "train/step", "train/after"] == list(timing.metrics())


def test_strict_allows_another_kind_at_another_place() -> None:
    """A kind belongs to a place, not to a key."""
    timing = Timing(clock=lambda: 0, strict=True)
    with timing.add_time("step"):
        pass
    with timing.add_time("train"), timing.timeit("step"):
        pass
    assert ["step", "train", "train/step"] == list(timing.metrics())


def test_too_many_places_are_folded(timing: Timing, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Past the limit new places share one, known ones go on as before, and it is said once."""
    monkeypatch.setattr(_timing, "MAX_NODES", 3)
    with caplog.at_level(logging.WARNING, logger="gpuprof.timing"):
        for _ in range(2):
            for key in "abcdefg":
                with timing.add_time(key):
                    clock.advance(1)
    assert {"a": 2.0, "b": 2.0, "c": 2.0, "(more)": 8.0} == dict(timing)
    assert ["t: more than 3 places; later ones are folded into '(more)'"] == caplog.messages


def test_folded_places_in_one_another_count_no_second_twice(timing: Timing, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a folded scope holds that of the folded scopes inside it already."""
    monkeypatch.setattr(_timing, "MAX_NODES", 1)
    with timing.add_time("a"):
        clock.advance(1)
    with timing.add_time("b"), timing.add_time("c"), timing.add_time("d"):
        clock.advance(1)
    assert {"a": 1.0, "(more)": 1.0} == dict(timing)


def test_many_places_take_constant_memory(timing: Timing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys made of data leave no more places than the limit and the one that they are folded into."""
    monkeypatch.setattr(_timing, "MAX_NODES", 10)
    for number in range(1000):
        with timing.add_time("outer"), timing.timeit(f"step {number}"), timing.time_avg(f"part {number}"):
            pass
    assert 11 == len(timing.metrics())


def test_copies_are_empty(timing: Timing, clock: Clock) -> None:
    """Pickling, copying and deep copying make an empty `Timing` of the same name that can record."""
    with timing.add_time("a"):
        clock.advance(1)
    for made in (pickle.loads(pickle.dumps(timing)), copy.copy(timing), copy.deepcopy(timing)):
        with made.add_time("b"):
            pass
        assert ("t", ["b"]) == (made.name, list(made))


def test_what_was_said_to_a_timing_travels() -> None:
    """A copy that is made for another process is switched off, strict, or keeps events as the original does."""
    off, strict = pickle.loads(pickle.dumps([Timing(enabled=False), Timing(strict=True, events=3)]))
    assert (False, True, True) == (off.enabled, strict._strict, strict._events is not None)


# The table


def cells(table: str) -> dict[str, dict[str, str]]:
    """A table in tabulate's `tsv` format, by the row's name and the column's."""
    head, *rows = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines()]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def test_the_table_has_everything(timing: Timing, clock: Clock) -> None:
    """Calls, total, mean, extremes, deviation and shares, in seconds and per cent."""
    for seconds in (1, 3):
        with timing.add_time("a"):
            clock.advance(seconds)
    clock.advance(4)
    expected = {"calls": "2", "total": "4.0000", "mean": "2.0000", "min": "1.0000", "max": "3.0000", "std": "1.0000"}
    assert {"a": {**expected, "% parent": "50.0", "% run": "50.0"}} == cells(timing.table("tsv"))


def test_the_table_says_what_is_not_in_the_children(timing: Timing, clock: Clock) -> None:
    """`(other)` makes the children's shares of their parent add up to all of it."""
    with timing.add_time("a"):
        with timing.add_time("b"):
            clock.advance(3)
        clock.advance(1)
    rows = {name.split(" ")[-1]: row for name, row in cells(timing.table("tsv")).items()}
    assert ("1.0000", "25.0", "25.0") == tuple(rows["(other)"][column] for column in ("total", "% parent", "% run"))
    assert "75.0" == rows["b"]["% parent"]


def test_the_table_has_no_other_where_children_have_it_all(timing: Timing, clock: Clock) -> None:
    """Nothing is said where nothing is left."""
    with timing.add_time("a"), timing.add_time("b"):
        clock.advance(3)
    assert "(other)" not in timing.table()


def test_concurrent_children_are_marked(timing: Timing, clock: Clock) -> None:
    """Children that ran at the same time take more than their parent: it has a mark, and no negative rest."""

    async def child(key: str, event: asyncio.Event) -> None:
        with timing.add_time(key):
            await event.wait()

    async def main() -> None:
        event = asyncio.Event()
        with timing.add_time("gather"):
            tasks = [asyncio.create_task(child(key, event)) for key in "ab"]
            await asyncio.sleep(0)
            clock.advance(1)
            event.set()
            await asyncio.gather(*tasks)

    asyncio.run(main())
    table = timing.table()
    assert ("gather ∥", False, False) == (next(iter(cells(timing.table("tsv")))), "(other)" in table, "-1" in table)


def test_the_table_marks_what_is_open(timing: Timing, clock: Clock) -> None:
    """A scope that has not ended is counted as open and has its time so far."""
    with timing.add_time("a"):
        clock.advance(2)
        row = cells(timing.table("tsv"))["a"]
    assert ("0", "1", "2.0000") == (row["calls"], row["open"], row["total"])


def test_the_table_leaves_out_columns_that_say_nothing(timing: Timing, clock: Clock) -> None:
    """Without open scopes, merged processes or a device, no column speaks of them."""
    with timing.add_time("a"):
        clock.advance(1)
    head = timing.table("tsv").splitlines()[0]
    assert [False] * 3 == [column in head for column in ("open", "device", "slowest")]


def test_the_table_shows_depth(timing: Timing, clock: Clock) -> None:
    """A child's name stands further to the right than its parent's, in a format that trims its cells as well."""
    with timing.add_time("outer"), timing.add_time("middle"), timing.add_time("inner"):
        clock.advance(1)
    lines = timing.table("github").splitlines()[2:]
    assert sorted(set(positions := [line.index(key) for line, key in zip(lines, ("outer", "middle", "inner"), strict=True)])) == (
        positions
    )


def test_keys_that_look_like_numbers_stay_as_they_are(timing: Timing, clock: Clock) -> None:
    """A key is text, also where all keys could be numbers."""
    for key in ("1e3", "2.50"):
        with timing.add_time(key):
            clock.advance(1)
    assert {"1e3", "2.50"} == set(cells(timing.table("tsv")))


def test_an_empty_tree_has_an_empty_table(timing: Timing) -> None:
    """A tree of nothing is no error."""
    assert {} == cells(timing.table("tsv"))


# The trace


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> int:
    """The time of day, standing still. Nanoseconds since the epoch."""
    now = 1_700_000_000_123_456_000
    monkeypatch.setattr(time, "time_ns", lambda: now)
    return now


def test_a_trace_satisfies_the_field_rules_of_the_chrome_format(wall: int, clock: Clock) -> None:
    """Checked by hand, after the format's description: which fields an event must have, of which types, and none without an end."""
    timing = Timing("t", clock=clock, events=10)
    with timing.add_time("a"), timing.timeit("b"), timing.time_avg("c"):
        clock.advance(1)
    trace = json.loads(json.dumps(timing.chrome_trace(), allow_nan=False))
    assert {"traceEvents", "displayTimeUnit", "otherData"} == set(trace)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert (str, int, int) == (type(event["name"]), type(event["pid"]), type(event["tid"]))
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert [str] == [type(value) for value in event["args"].values()]
        else:
            assert "X" == event["ph"]
            assert all(isinstance(event[name], int | float) and event[name] >= 0 for name in ("ts", "dur"))
    assert len(spans(trace)) == 3


def test_a_trace_is_in_microseconds_since_the_epoch(wall: int, clock: Clock) -> None:
    """A clock that starts anywhere is moved to the time of day."""
    clock.now = 77
    timing = Timing("t", clock=clock, events=10)
    clock.advance(2)
    with timing.add_time("a"):
        clock.advance(0.5)
    (span,) = spans(timing.chrome_trace())
    assert ("a", wall / 1000 + 2e6, 5e5, os.getpid()) == (span["name"], span["ts"], span["dur"], span["pid"])


def test_a_trace_names_its_process(clock: Clock) -> None:
    """The title is the process's name."""
    metadata = Timing("Learner 0", clock=clock, events=1).chrome_trace()["traceEvents"]
    assert [("process_name", {"name": "Learner 0"})] == [(event["name"], event["args"]) for event in metadata]


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
    tracks = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    named = {span["name"]: tracks[span["tid"]] for span in spans(trace)}
    assert (4, f"thread {threading.get_ident()}") == (len(set(named.values())), named["main"])
    assert [True, True] == [named[key].startswith(f"task {key} ") for key in "ab"]


def test_what_the_ring_had_no_room_for_is_counted(clock: Clock) -> None:
    """The last scopes are kept, and a reader learns how many are missing."""
    timing = Timing("t", clock=clock, events=2)
    for key in "abcde":
        with timing.add_time(key):
            clock.advance(1)
    trace = timing.chrome_trace()
    assert (["d", "e"], 3) == ([span["name"] for span in spans(trace)], trace["otherData"]["dropped"])


def test_reset_empties_the_trace(clock: Clock) -> None:
    """A tree that begins anew has no old events, dropped ones included."""
    timing = Timing("t", clock=clock, events=1)
    for _ in range(3):
        with timing.add_time("a"):
            pass
    timing.reset()
    trace = timing.chrome_trace()
    assert ([], 0) == (spans(trace), trace["otherData"]["dropped"])


def test_a_timing_without_events_says_how_to_get_them(timing: Timing) -> None:
    """The error has the argument that was missing."""
    with pytest.raises(ValueError, match=r"this Timing keeps no events: make it with Timing\(events=100_000\)"):
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
    """As written, a span ends no later than the one around it ends and the next one begins: viewers drop what overlaps."""
    clock = Clock()
    timing = Timing("t", clock=clock, events=100)
    timing._wall = 1_700_000_000_123_456_789
    with timing.add_time("outer"):
        for duration in nanoseconds:
            with timing.add_time("inner"):
                clock.now += duration
    *inner, outer = spans(json.loads(json.dumps(timing.chrome_trace())))
    ends = [Fraction(span["ts"]) + Fraction(span["dur"]) for span in inner]
    assert all(end <= span["ts"] for end, span in zip(ends, inner[1:], strict=False))
    assert ends[-1] <= Fraction(outer["ts"]) + Fraction(outer["dur"])

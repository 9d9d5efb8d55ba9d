"""Decorated generators, asynchronous ones too: timed while they run, otherwise unchanged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from gpuprof_timing import Timing
from hypothesis import given
from hypothesis import strategies as st
from support.manual_clock import Clock
from support.tree_facts import calls


def test_a_generator_is_timed_while_it_runs(timing: Timing, clock: Clock) -> None:
    """A generator's time excludes its consumer's; each resumption is a call."""

    @timing.add_time("produce")
    def produce() -> Iterator[int]:
        for value in range(2):
            clock.advance(1)
            yield value
        clock.advance(3)

    for _ in produce():
        clock.advance(10)
    assert 5.0 == timing["produce"]
    assert 3 == calls(timing, "produce")


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

    def generator() -> Iterator[int]:
        yield 1

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


ACTIONS = st.sampled_from(
    ["next", "send", "send", "throw", "throw other", "throw stop", "close", "stop"]
)


@given(st.lists(st.tuples(ACTIONS, st.integers(1, 3)), max_size=12))
def test_a_decorated_generator_cannot_be_told_from_a_plain_one(
    steps: list[tuple[str, int]],
) -> None:
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
    assert 2.0 == timing["produce"]
    assert 2 == calls(timing, "produce")


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
    assert 3 == value
    assert 3.0 == timing["manage"]


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

    assert [0, 1] == asyncio.run(main())
    assert 4.0 == timing["produce"]
    assert 3 == calls(timing, "produce")


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


@given(st.lists(st.tuples(ACTIONS, st.integers(1, 3)), max_size=12))
def test_a_decorated_async_generator_cannot_be_told_from_a_plain_one(
    steps: list[tuple[str, int]],
) -> None:
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
    assert 2.0 == timing["produce"]
    assert 2 == calls(timing, "produce")

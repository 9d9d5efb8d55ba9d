"""Decorated functions, methods and coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from gpuprof_timing import Timing, annotate
from support.manual_clock import Clock
from support.tree_facts import calls


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
@pytest.mark.parametrize(
    "plain", [function, coroutine, generator, async_generator], ids=lambda plain: plain.__name__
)
def test_a_decorated_function_stays_what_it_is(
    timing: Timing, plain: Any, make: Callable[[Timing], Any]
) -> None:
    """`inspect` gives the same answers, name, signature and the original included."""
    decorated = make(timing)(plain)
    assert [ask(plain) for ask in QUESTIONS] == [ask(decorated) for ask in QUESTIONS]
    assert plain.__name__ == decorated.__name__
    assert inspect.signature(plain) == inspect.signature(decorated)
    assert plain == decorated.__wrapped__


def test_methods_of_all_kinds(timing: Timing, clock: Clock) -> None:
    """Methods of all kinds are timed if the decorator is next to the function."""

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

    assert Worker == Worker().method()
    assert Worker == Worker.of_class()
    assert 3 == Worker.static(3)
    assert 3 == Worker().static(3)
    assert {"method": 1.0, "class": 2.0, "static": 8.0} == dict(timing)


def test_the_decorator_above_those_of_methods(timing: Timing, clock: Clock) -> None:
    """Class and static methods stay what they are, called on the class or on an instance."""

    class Worker:
        @timing.add_time("class")
        @classmethod
        def of_class(cls) -> type[Worker]:
            clock.advance(2)
            return cls

        @timing.add_time("static")
        @staticmethod
        def static(value: int) -> int:
            clock.advance(4)
            return value

        @annotate("wait")
        @staticmethod
        async def wait() -> int:
            return 5

    assert Worker == Worker.of_class()
    assert Worker == Worker().of_class()
    assert 3 == Worker.static(3)
    assert 3 == Worker().static(3)
    assert {"class": 4.0, "static": 8.0} == dict(timing)
    assert inspect.iscoroutinefunction(Worker.wait) is True
    assert 5 == asyncio.run(Worker().wait())


class Plain:
    """Can be called, as modules of torch can."""

    def __call__(self, clock: Clock) -> int:
        clock.advance(1)
        return 3


class Coroutine:
    """Is awaited."""

    async def __call__(self, clock: Clock) -> int:
        await asyncio.sleep(0)
        clock.advance(1)
        return 3


class Generator:
    """Is iterated."""

    def __call__(self, clock: Clock) -> Iterator[int]:
        clock.advance(1)
        yield 3


class AsyncGenerator:
    """Is iterated by tasks."""

    async def __call__(self, clock: Clock) -> AsyncIterator[int]:
        clock.advance(1)
        yield 3


async def gathered(values: AsyncIterator[int]) -> list[int]:
    return [value async for value in values]


@pytest.mark.parametrize(
    ("called", "finish", "question"),
    [
        (Plain(), lambda result: result, inspect.isfunction),
        (Coroutine(), asyncio.run, inspect.iscoroutinefunction),
        (Generator(), lambda result: next(iter(result)), inspect.isgeneratorfunction),
        (
            AsyncGenerator(),
            lambda result: asyncio.run(gathered(result))[0],
            inspect.isasyncgenfunction,
        ),
    ],
)
def test_an_object_that_can_be_called(
    timing: Timing, clock: Clock, called: Any, finish: Any, question: Any
) -> None:
    """It is timed as what its `__call__` is, also behind a partial; and `inspect` is told so."""
    direct, bound = (
        timing.add_time("direct")(called),
        timing.add_time("bound")(partial(partial(called), clock)),
    )
    assert 3 == finish(direct(clock))
    assert 3 == finish(bound())
    assert {"direct": 1.0, "bound": 1.0} == dict(timing)
    assert question(direct) is True
    assert question(bound) is True


def test_a_class_that_is_decorated(timing: Timing, clock: Clock) -> None:
    """What is timed is making an object of it, whatever calling that would be."""
    made = timing.add_time("make")(Coroutine)()
    assert type(made) is Coroutine
    assert 1 == calls(timing, "make")


def test_a_property_below_the_decorator(timing: Timing, clock: Clock) -> None:
    """A property's getter is a function like any other."""

    class Worker:
        @property
        @timing.add_time("read")
        def value(self) -> int:
            clock.advance(1)
            return 3

    assert 3 == Worker().value
    assert 1.0 == timing["read"]


def test_a_partial_of_a_coroutine_function(timing: Timing, clock: Clock) -> None:
    """What `inspect` takes for a coroutine function is awaited inside the scope."""

    async def wait(seconds: float) -> float:
        clock.advance(seconds)
        return seconds

    decorated = timing.add_time("a")(partial(wait, 2))
    assert 2 == asyncio.run(decorated())
    assert 2.0 == timing["a"]


def test_arguments_results_and_exceptions_pass(timing: Timing) -> None:
    """Arguments and exceptions pass through a decorated function, and the call is counted."""

    @timing.add_time("a")
    def call(*args: int, **kwargs: int) -> tuple[object, ...]:
        if not args:
            raise KeyError("none")
        return args, kwargs

    assert ((1, 2), {"key": 3}) == call(1, 2, key=3)
    with pytest.raises(KeyError, match="none"):
        call()
    assert 2 == calls(timing, "a")


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
    assert 3 == calls(timing, "wait")
    assert 2.0 == timing["wait"]


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
    assert ["cancelled"] == seen
    assert 1 == calls(timing, "wait")
    assert 1.0 == timing["wait"]


@pytest.mark.parametrize("what", [property(str), None], ids=["property", "None"])
def test_what_is_not_called_is_refused(timing: Timing, what: Any) -> None:
    """Where it is decorated: a property would become a method."""
    with pytest.raises(TypeError, match="stands below @property"):
        timing.add_time("a")(what)

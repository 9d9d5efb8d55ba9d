"""Random interleavings of threads, tasks, generators and contexts, against the model."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from gpuprof_timing import Timing
from hypothesis import given
from hypothesis import strategies as st
from support.manual_clock import Clock
from support.nesting_model import Model, ModelContext, ModelScope
from support.tree_facts import facts_of

KEYS = st.sampled_from("abc")
WHICH = st.integers(0, 9)


@pytest.fixture(scope="module")
def threads() -> Iterator[list[ThreadPoolExecutor]]:
    """Three threads, each of which does one thing when it is told to."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ThreadPoolExecutor(max_workers=1)) for _ in range(3)]


class ThreadActor:
    """A context, the thread that it runs in, and the scopes that it has open."""

    def __init__(
        self, thread: int, context: ModelContext, copied: contextvars.Context | None
    ) -> None:
        self.thread = thread
        self.context = context
        self.copied = copied
        self.open: list[tuple[Any, ModelScope]] = []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "enter", "enter", "leave", "leave", "wait", "copy", "reset"]),
            WHICH,
            WHICH,
            KEYS,
        ),
        min_size=15,
        max_size=45,
    )
)
def test_threads_and_copied_contexts(
    threads: list[ThreadPoolExecutor], steps: list[tuple[str, int, int, str]]
) -> None:
    """Threads, and contexts copied to other threads, build the model's tree in any order."""
    clock = Clock()
    timing, model = Timing(clock=clock), Model(clock)
    actors = [ThreadActor(thread, model.context(), None) for thread in range(len(threads))]

    def do(actor: ThreadActor, call: Callable[..., Any]) -> Any:
        if actor.copied is not None:
            call = partial(actor.copied.run, call)
        return threads[actor.thread].submit(call).result()

    for action, who, which, key in steps:
        actor = actors[who % len(actors)]
        if action == "enter":
            scope = timing.add_time(key)
            do(actor, scope.__enter__)
            actor.open.append((scope, model.enter(actor.context, key, actor.thread)))
        elif action == "leave" and actor.open:
            scope, expected = actor.open.pop(which % len(actor.open))
            do(actor, partial(scope.__exit__, None, None, None))
            model.leave(expected)
        elif action == "wait":
            clock.now += which
        elif action == "reset":
            do(actor, timing.reset)
            model.begin()
        elif action == "copy":
            # Run in a thread that neither made the copy nor owns the cursor in it.
            taken = {actor.thread, actor.context.cursor.thread}
            thread = next(thread for thread in range(len(threads)) if thread not in taken)
            actors.append(
                ThreadActor(thread, actor.context.copy(), do(actor, contextvars.copy_context))
            )
        assert model.facts() == facts_of(timing)


class TaskActor:
    """A task that does one thing when it is told to, and the scopes that it has open."""

    def __init__(self, context: ModelContext) -> None:
        self.context = context
        self.open: list[tuple[Any, ModelScope]] = []
        self.orders: asyncio.Queue[tuple[Callable[[], Any], asyncio.Future[Any]]] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None

    async def work(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.leave_all)
            while True:
                call, done = await self.orders.get()
                result = call()
                done.set_result(await result if asyncio.iscoroutine(result) else result)

    def leave_all(self) -> None:
        while self.open:
            self.open.pop()[0].__exit__(None, None, None)

    async def do(self, call: Callable[[], Any]) -> Any:
        done = asyncio.get_running_loop().create_future()
        self.orders.put_nowait((call, done))
        return await done


TASK_ACTIONS = st.sampled_from(
    ["enter", "enter", "enter", "leave", "leave", "wait", "spawn", "cancel", "thread", "reset"]
)


@given(st.lists(st.tuples(TASK_ACTIONS, WHICH, WHICH, KEYS), min_size=15, max_size=45))
def test_tasks(steps: list[tuple[str, int, int, str]]) -> None:
    """Tasks that nest, are cancelled or call threads build the model's tree in any order."""
    clock = Clock()
    timing, model = Timing(clock=clock), Model(clock)
    in_thread = object()

    def in_one_thread(key: str) -> None:
        with timing.add_time(key), timing.add_time("inner"):
            pass

    async def main() -> None:
        def spawn(context: ModelContext) -> TaskActor:
            actor = TaskActor(context)
            actor.task = asyncio.ensure_future(actor.work())
            return actor

        actors = [spawn(model.context())]
        for action, who, which, key in steps:
            index = who % len(actors)
            actor = actors[index]
            if action == "enter":
                scope = timing.add_time(key)
                await actor.do(scope.__enter__)
                actor.open.append((scope, model.enter(actor.context, key, None)))
            elif action == "leave" and actor.open:
                scope, expected = actor.open.pop(which % len(actor.open))
                await actor.do(partial(scope.__exit__, None, None, None))
                model.leave(expected)
            elif action == "wait":
                clock.now += which
            elif action == "reset":
                await actor.do(timing.reset)
                model.begin()
            elif action == "spawn":
                actors.append(await actor.do(partial(spawn, actor.context.copy())))
            elif action == "cancel" and index:
                del actors[index]
                for _, expected in reversed(actor.open):
                    model.leave(expected)
                assert actor.task is not None
                actor.task.cancel()
                await asyncio.wait([actor.task])
            # seldom: a new event loop makes a new thread for it
            elif action == "thread" and which < 3:
                await actor.do(partial(asyncio.to_thread, in_one_thread, key))
                context = actor.context.copy()
                outer = model.enter(context, key, in_thread)
                model.leave(model.enter(context, "inner", in_thread))
                model.leave(outer)
            assert model.facts() == facts_of(timing)
        for actor in actors:
            assert actor.task is not None
            actor.open.clear()
            actor.task.cancel()
        await asyncio.wait([actor.task for actor in actors if actor.task is not None])

    asyncio.run(main())


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["start", "start", "close", "exhaust", "elsewhere", "wait", "reset"]),
            WHICH,
            KEYS,
        ),
        min_size=15,
        max_size=45,
    )
)
def test_generators(steps: list[tuple[str, int, str]]) -> None:
    """Generators closed early, late or in another context build the model's tree."""
    clock = Clock()
    timing, model = Timing(clock=clock), Model(clock)
    context = model.context()
    held: list[tuple[Iterator[None], ModelScope]] = []

    def hold(key: str) -> Iterator[None]:
        with timing.add_time(key):
            yield

    for action, which, key in steps:
        if action == "start":
            generator = hold(key)
            next(generator)
            held.append((generator, model.enter(context, key, "this thread")))
        elif action == "wait":
            clock.now += which
        elif action == "reset":
            timing.reset()
            model.begin()
        elif held:
            generator, expected = held.pop(which % len(held))
            if action == "close":
                generator.close()  # type: ignore[attr-defined]
            elif action == "exhaust":
                assert [] == list(generator)
            else:
                contextvars.Context().run(generator.close)  # type: ignore[attr-defined]
            model.leave(expected)
        assert model.facts() == facts_of(timing)


def shape(depth: int) -> st.SearchStrategy[Any]:
    """Calls in calls, as lists of key, nanoseconds and what is called."""
    inner = st.just([]) if depth == 0 else shape(depth - 1)
    return st.lists(st.tuples(KEYS, st.integers(0, 9), inner), max_size=3)


@given(shape(4))
def test_recursive_calls(calls: Any) -> None:
    """Functions that call themselves and each other through decorators make the model's tree."""
    clock = Clock()
    timing, model = Timing(clock=clock), Model(clock)
    context = model.context()

    def body(nanoseconds: int, inner: Any) -> None:
        clock.now += nanoseconds
        for call in inner:
            run(*call)

    functions = {key: timing.add_time(key)(body) for key in "abc"}

    def run(key: str, nanoseconds: int, inner: Any) -> None:
        scope = model.enter(context, key, "this thread")
        functions[key](nanoseconds, inner)
        model.leave(scope)

    for call in calls:
        run(*call)
    assert model.facts() == facts_of(timing)

"""Each way of starting work, and where its scopes come to lie."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gpuprof_timing import Timing
from support.tree_facts import paths_of


@pytest.fixture
def timing() -> Timing:
    return Timing(clock=lambda: 0)


def test_a_task_nests_below_the_scope_it_was_made_in_when_its_maker_has_moved_on(
    timing: Timing,
) -> None:
    """A task belongs to the scope that was open when it was made."""

    async def work() -> None:
        with timing.add_time("work"):
            await asyncio.sleep(0)

    async def main() -> None:
        with timing.add_time("maker"):
            with timing.add_time("first"):
                pass
            task = asyncio.create_task(work())
            with timing.add_time("second"):
                await task

    asyncio.run(main())
    assert {"maker", "maker/first", "maker/second", "maker/work"} == paths_of(timing)


@pytest.mark.xfail(strict=True, reason="the copied cursor moves on with its maker")
def test_a_task_made_before_the_loop_runs_starts_where_its_maker_was(timing: Timing) -> None:
    """A task that is made while no loop runs does not follow its maker into the next scope."""

    async def work() -> None:
        with timing.add_time("work"):
            await asyncio.sleep(0)

    with contextlib.closing(asyncio.new_event_loop()) as loop, timing.add_time("maker"):
        task = loop.create_task(work())
        with timing.add_time("later"):
            loop.run_until_complete(task)
    assert {"maker", "maker/later", "maker/work"} == paths_of(timing)


def test_a_task_outlives_the_scope_it_was_made_in(timing: Timing) -> None:
    """If the maker's scope is closed, a task's scope nests in the nearest open one."""

    async def work() -> None:
        with timing.add_time("work"):
            await asyncio.sleep(0)

    async def main() -> None:
        with timing.add_time("outer"):
            with timing.add_time("maker"):
                task = asyncio.create_task(work())
            await task

    asyncio.run(main())
    assert {"outer", "outer/maker", "outer/work"} == paths_of(timing)


def test_a_scope_around_the_loop(timing: Timing) -> None:
    """Scopes in `asyncio.run` nest below the scope around it; later ones do not."""

    async def main() -> None:
        with timing.add_time("main"):
            await asyncio.gather(work(), work())

    async def work() -> None:
        with timing.add_time("work"):
            await asyncio.sleep(0)

    with timing.add_time("around"):
        asyncio.run(main())
        with timing.add_time("after"):
            pass
    assert {"around", "around/main", "around/main/work", "around/after"} == paths_of(timing)


def test_a_thread_reading_a_scope_that_is_just_being_entered() -> None:
    """A report that is made in the middle of entering a scope sees the scope at its beginning."""
    read: list[dict[str, Any]] = []
    timing = Timing(clock=lambda: 0)

    def clock() -> int:
        # The clock is the one call between a scope's registration and its start: another thread, or
        # a signal, may come in here.
        if not read:
            read.append({})
            with ThreadPoolExecutor(max_workers=1) as pool:
                read[0] = pool.submit(timing.to_dict).result()
        return 0

    timing._recording.clock = clock
    with timing.add_time("a"):
        pass
    (node,) = read[0]["children"]
    assert "a" == node["key"]
    assert 0 == node["count"]
    assert 0 == node["open_elapsed"]


def test_a_thread_reading_a_scope_that_is_being_entered_again() -> None:
    """A reused scope's time so far begins at its latest start."""
    now = 0
    read: list[dict[str, Any]] = []
    timing = Timing(clock=lambda: now)
    scope = timing.add_time("a")
    with scope:
        pass
    now = 1_000_000

    def clock() -> int:
        if not read:
            read.append({})
            with ThreadPoolExecutor(max_workers=1) as pool:
                read[0] = pool.submit(timing.to_dict).result()
        return now

    timing._recording.clock = clock
    with scope:
        pass
    assert 0 == read[0]["children"][0]["open_elapsed"]


@pytest.mark.xfail(
    strict=True, reason="copies in one thread share the cursor that the thread moves"
)
def test_contexts_that_take_turns_in_one_thread_without_a_loop(timing: Timing) -> None:
    """Contexts copied from one place do not nest in each other, as in other event loops."""

    def hold(key: str) -> Iterator[None]:
        with timing.add_time(key):
            yield

    with timing.add_time("outer"):
        tasks = [(contextvars.copy_context(), hold(key)) for key in "ab"]
        for context, task in tasks:
            context.run(next, task)
        for context, task in tasks:
            context.run(next, task, None)
    assert {"outer", "outer/a", "outer/b"} == paths_of(timing)


def test_a_kept_scope_entered_again_below_a_scope_that_it_was_around(timing: Timing) -> None:
    """Both end, although each was the other's parent, and later scopes lie at the top."""
    kept, other = timing.add_time("kept"), timing.add_time("other")
    for call in (kept.__enter__, other.__enter__):
        call()
    kept.__exit__(None, None, None)
    kept.__enter__()
    other.__exit__(None, None, None)
    kept.__exit__(None, None, None)
    with timing.add_time("later"):
        pass
    assert {"kept", "kept/other", "kept/other/kept", "later"} == paths_of(timing)


def test_scopes_that_overlap_for_ever_keep_no_closed_one(timing: Timing) -> None:
    """Scopes that overlap hand over hand keep only a constant number of scopes alive."""

    def hold() -> Iterator[None]:
        with timing.add_time("stage"):
            yield

    def in_own_thread() -> int:
        current = hold()
        next(current)
        for _ in range(1000):
            following = hold()
            next(following)
            current.close()  # type: ignore[attr-defined]
            current = following
        scope, held = timing._recording.get_cursor().scope, 0
        while getattr(scope, "parent", None) is not None:
            scope, held = scope.parent, held + 1
        current.close()  # type: ignore[attr-defined]
        return held

    with ThreadPoolExecutor(max_workers=1) as pool:
        assert pool.submit(in_own_thread).result() < 10

"""What is left of a tree that was reset, and of a `Timing` that nobody has any more."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from gpuprof_timing import Timing, set_range_opener
from gpuprof_timing._node import Node
from gpuprof_timing._recording import Recording
from support.tree_facts import paths_of


@pytest.fixture
def timing() -> Timing:
    return Timing(clock=lambda: 0)


def alive(name: str) -> list[str]:
    """The living nodes and recordings of the trees with this module's key."""
    gc.collect()
    found = gc.get_objects()
    nodes = [thing.key for thing in found if type(thing) is Node and thing.key == KEY]
    return nodes + [
        thing.name for thing in found if type(thing) is Recording and thing.name == name
    ]


KEY = "of the tests of lifetimes"


def use(timing: Timing) -> None:
    with (
        timing.add_time("a"),
        timing.timeit("b"),
        timing.add_time("b"),
        timing.time_avg("c"),
        timing.add_time(KEY),
    ):
        pass


def in_a_loop(timing: Timing) -> None:
    async def main() -> None:
        use(timing)

    asyncio.run(main())


@pytest.mark.parametrize("work", [use, in_a_loop])
def test_a_reset_tree_is_gone(timing: Timing, work: Callable[[Timing], None]) -> None:
    """No context keeps nodes of a reset tree: neither its own nor an idle thread's."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        for _ in range(3):
            pool.submit(work, timing).result()
            work(timing)
            timing.reset()
        assert [] == alive("reset")


def test_a_dropped_timing_is_gone_at_once(timing: Timing) -> None:
    """It is in no cycle, so none of them waits for the garbage collector."""
    gc.disable()
    try:
        use(timing)
        dropped = Timing()
        use(dropped)
        gone = weakref.ref(dropped)
        del dropped
        assert gone() is None
    finally:
        gc.enable()


def test_dropped_timings_do_not_add_up() -> None:
    """A `Timing` for each step leaves nothing in contexts, which never release variables."""
    for work in (use, in_a_loop, use):
        work(Timing("dropped"))
        work(Timing("dropped", enabled=False))
    assert [] == alive("dropped")


def test_dropped_timings_share_a_variable() -> None:
    """No context lets go of a variable either, so the next one takes it over."""
    assert 1 == len({Timing()._recording._variable for _ in range(20)})


def succeed() -> None:
    """Drop a `Timing` with a scope open in it, and use the next."""
    first = Timing(clock=lambda: 0)
    use(first)
    scope, variable = first.add_time("old"), first._recording._variable
    scope.__enter__()
    del first
    second = Timing(clock=lambda: 0)
    assert variable is second._recording._variable
    with second.add_time("outer"):
        scope.__exit__(None, None, None)
        use(second)
    assert {"outer", "outer/a", "outer/a/b", "outer/a/b/c", f"outer/a/b/c/{KEY}"} == paths_of(
        second
    )


def test_a_timing_in_place_of_one_that_is_gone() -> None:
    """Open scopes of a dropped `Timing` are never around those of the next one."""
    succeed()


def test_a_timing_in_place_of_one_that_is_gone_in_a_loop() -> None:
    """In an event loop, where contexts have a cursor for each scope, as well."""

    async def main() -> None:
        succeed()

    asyncio.run(main())


def test_what_is_left_over_of_a_dropped_timing_is_in_no_other_tree() -> None:
    """Scopes that outlive their `Timing` still open ranges and time nothing."""
    dropped = Timing()
    function, scope = dropped.add_time("function")(lambda: 3), dropped.add_time("scope")
    del dropped
    names: list[str] = []
    set_range_opener(lambda name, crosses_tasks: contextlib.nullcontext(names.append(name)))
    try:
        timing = Timing(clock=lambda: 0)
        for key in ("function", "scope"):
            with timing.add_time(key):
                pass
        with scope:
            assert 3 == function()
    finally:
        set_range_opener(None)
    assert [1, 1] == [node["count"] for node in timing.to_dict()["children"]]
    assert ["function", "scope", "scope", "function"] == names


def test_what_is_left_over_of_a_dropped_timing_travels() -> None:
    """A function that was decorated by it is sent to other processes like any other."""
    recording = Timing("gone")._recording
    with pickle.loads(pickle.dumps(recording)).add_time("a"):
        pass


def test_a_scope_open_across_a_reset_is_around_nothing(timing: Timing) -> None:
    """After a reset scopes begin at the new root; open ones end in the old tree."""
    with timing.add_time("open"):
        use(timing)
        timing.reset()
        for _ in range(3):
            use(timing)
    assert {"a", "a/b", "a/b/c", f"a/b/c/{KEY}"} == paths_of(timing)
    assert 3 == timing.to_dict()["children"][0]["count"]


def test_tasks_with_scopes_open_across_a_reset(timing: Timing) -> None:
    """A task that loses its place by another's reset begins at the new root."""

    async def step(begun: asyncio.Event, reset: asyncio.Event) -> None:
        with timing.add_time("open"), timing.add_time("inner"):
            use(timing)  # the old tree knows all these places
            begun.set()
            await reset.wait()
            for _ in range(2):
                use(timing)
                await asyncio.sleep(0)

    async def main() -> None:
        begun, reset = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(step(begun, reset))
        await begun.wait()
        timing.reset()
        reset.set()
        await task

    asyncio.run(main())
    assert {"a", "a/b", "a/b/c", f"a/b/c/{KEY}"} == paths_of(timing)

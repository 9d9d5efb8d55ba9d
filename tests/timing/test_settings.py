"""What switches scopes off, what is strict, how many places there are, and what travels."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from gpuprof_timing import Timing, set_range_opener
from support.manual_clock import Clock
from support.tree_facts import calls

SECOND = 10**9


WAYS: list[Callable[[Timing], Any]] = [
    lambda timing: timing.add_time("a"),
    lambda timing: timing.timeit("a"),
    lambda timing: timing.time_avg("a", average=3),
    lambda timing: timing.add_time("a", device="cuda"),
]
IDS = ["add_time", "timeit", "time_avg", "device"]


@pytest.mark.parametrize("make", WAYS, ids=IDS)
@pytest.mark.parametrize("at_first", [True, False])
def test_the_switch_holds_for_decorated_functions(
    make: Callable[[Timing], Any], at_first: bool
) -> None:
    """A decorated function is timed while switched on, whatever held at decoration."""
    timing = Timing(clock=lambda: 0, enabled=at_first)
    function = make(timing)(lambda value: value)
    for enabled in (False, True, False, True):
        timing.enabled = enabled
        assert 3 == function(3)
    assert 2 == timing.to_dict()["children"][0]["count"]


@pytest.mark.parametrize("make", WAYS, ids=IDS)
def test_switched_off_a_decorated_function_is_called_and_nothing_else(
    make: Callable[[Timing], Any],
) -> None:
    """A hot function may stay decorated: there is one Python call more than without."""
    function = make(Timing(enabled=False))(lambda: None)
    called: list[str] = []
    before = sys.getprofile()
    sys.setprofile(
        lambda frame, event, argument: (
            called.append(frame.f_code.co_name) if event == "call" else None
        )
    )
    try:
        function()
    finally:
        sys.setprofile(before)
    assert 2 == len(called), called


@pytest.mark.parametrize("make", WAYS, ids=IDS)
def test_the_switch_holds_for_scopes_that_are_kept(make: Callable[[Timing], Any]) -> None:
    """Scopes switched off leave nothing; those open at the switch end as they began."""
    timing = Timing(clock=lambda: 0)
    kept, on, off = make(timing), timing.add_time("on"), timing.add_time("off")
    names: list[str] = []
    set_range_opener(lambda name, crosses_tasks: nullcontext(names.append(name)))
    try:
        with on:
            timing.enabled = False
            with kept, off:
                timing.enabled = True
                with timing.add_time("below"):
                    pass
    finally:
        set_range_opener(None)
    assert ["on", "on/below"] == list(timing.metrics())
    assert ["on", "below"] == names
    with kept:
        pass
    assert ["on", "on/below", "a"] == list(timing.metrics())


def test_the_switch_holds_in_an_event_loop(timing: Timing) -> None:
    """Where each scope sets a cursor of its own."""

    async def main() -> None:
        kept = timing.add_time("kept")
        timing.enabled = False
        with kept:
            timing.enabled = True
            with timing.add_time("on"):
                pass

    asyncio.run(main())
    assert ["on"] == list(timing)


@pytest.mark.parametrize("enabled", [True, False])
def test_another_thread_may_switch_while_a_scope_is_entered(
    timing: Timing, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    """A switch between reading and setting the cursor misplaces no later scope."""

    async def main() -> None:
        around, kept = timing.add_time("around"), timing.add_time("kept")
        with around:
            timing.enabled = not enabled
            find = timing._recording.get_cursor

            def find_and_switch() -> Any:
                cursor = find()
                timing.enabled = enabled
                return cursor

            monkeypatch.setattr(timing._recording, "get_cursor", find_and_switch)
            with kept:
                pass
            timing.enabled = True
            with timing.add_time("after"):
                pass

    asyncio.run(main())
    assert ["around", *(["around/kept"] if not enabled else []), "around/after"] == list(
        timing.metrics()
    )


def test_switched_off_keys_made_of_data_take_constant_memory(
    timing: Timing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is switched off is remembered for the keys of a loop, not for all that ever were."""
    monkeypatch.setattr("gpuprof_timing._recording.MAX_NODES", 3)
    timing.enabled = False
    for number in range(10):
        with timing.add_time(f"step {number}"):
            pass
    assert 3 == len(timing._recording._off)
    assert timing.add_time("step 0") is timing.add_time("step 0")


def test_switched_off_nothing_is_recorded() -> None:
    """Scopes switched off can be nested, shared and left by exceptions, without a trace."""
    timing = Timing(enabled=False)
    scope = timing.add_time("a")
    with pytest.raises(KeyError), scope, scope, timing.timeit("b"), timing.time_avg("c"):
        raise KeyError
    assert bool(timing) is False
    assert {} == dict(timing)
    assert [] == timing.to_dict()["children"]


@pytest.mark.parametrize(
    ("value", "expected"), [("0", False), ("1", True), ("", True), (None, True)]
)
def test_the_environment_switches_off(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool
) -> None:
    """`GPUPROF_TIMING=0`, and only that, switches off."""
    monkeypatch.delenv("GPUPROF_TIMING", raising=False)
    if value is not None:
        monkeypatch.setenv("GPUPROF_TIMING", value)
    assert expected == Timing().enabled


def test_the_program_overrules_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Timing` that says what it wants does not ask the environment."""
    monkeypatch.setenv("GPUPROF_TIMING", "0")
    assert Timing(enabled=True).enabled is True
    assert Timing(enabled=False).enabled is False


def test_what_is_switched_off_can_be_switched_on(timing: Timing) -> None:
    """`enabled` is asked for each scope."""
    for enabled, key in [(False, "a"), (True, "b"), (False, "c")]:
        timing.enabled = enabled
        with timing.add_time(key), timing.timeit(f"inner {key}"):
            pass
    assert ["b", "inner b"] == list(timing)


def test_a_subclass_may_have_an_add_time_of_its_own() -> None:
    """What a subclass overrides is what is called, also after it has called the original."""

    class Prefixed(Timing):
        def add_time(self, key: str, device: str | None = None) -> Any:
            return super().add_time(f"my {key}", device)

    timing = Prefixed()
    for key in "ab":
        with timing.add_time(key):
            pass
    assert ["my a", "my b"] == list(timing)


def test_a_timing_can_be_renamed(timing: Timing) -> None:
    """Its reports have the new name."""
    timing.name = "evaluation"
    assert "evaluation tree view:" == str(timing)
    assert "evaluation" == timing.to_dict()["name"]


def test_a_record_is_read_where_timing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of others are read and merged whatever this process does itself."""
    timing = Timing(clock=iter(range(0, 100 * SECOND, SECOND)).__next__)
    with timing.add_time("a"):
        pass
    data = timing.to_dict()
    monkeypatch.setenv("GPUPROF_TIMING", "0")
    assert 1.0 == Timing.from_dict(data)["a"]
    assert 1.0 == Timing.merge([Timing.from_dict(data)])["a"]


def test_strict_raises_where_a_second_kind_is_used() -> None:
    """The error has the place, both kinds and the title, and the scope is not open."""
    timing = Timing("trainer", clock=lambda: 0, strict=True)
    with timing.add_time("train"):
        with timing.add_time("step"):
            pass
        with pytest.raises(
            ValueError,
            match=(
                "trainer: 'train/step' is shown as add_time, the first use; timeit there is ignored"
            ),
        ):
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


def test_too_many_places_are_folded(
    timing: Timing, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Past the limit new places share one, known ones go on as before, and it is said once."""
    monkeypatch.setattr("gpuprof_timing._recording.MAX_NODES", 3)
    with caplog.at_level(logging.WARNING, logger="gpuprof.timing"):
        for _ in range(2):
            for key in "abcdefg":
                with timing.add_time(key):
                    clock.advance(1)
    assert {"a": 2.0, "b": 2.0, "c": 2.0, "(more)": 8.0} == dict(timing)
    assert ["t: more than 3 places; later ones are folded into '(more)'"] == caplog.messages


def test_folded_places_in_one_another_count_no_second_twice(
    timing: Timing, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a folded scope holds that of the folded scopes inside it already."""
    monkeypatch.setattr("gpuprof_timing._recording.MAX_NODES", 1)
    with timing.add_time("a"):
        clock.advance(1)
    with timing.add_time("b"), timing.add_time("c"), timing.add_time("d"):
        clock.advance(1)
    assert {"a": 1.0, "(more)": 1.0} == dict(timing)


def test_many_places_take_constant_memory(timing: Timing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys made from data stay within the limit, plus one place for the rest."""
    monkeypatch.setattr("gpuprof_timing._recording.MAX_NODES", 10)
    for number in range(1000):
        with (
            timing.add_time("outer"),
            timing.timeit(f"step {number}"),
            timing.time_avg(f"part {number}"),
        ):
            pass
    assert 11 == len(timing.metrics())


def test_copies_are_empty(timing: Timing, clock: Clock) -> None:
    """A pickle or a copy is an empty `Timing` of the same name that can record."""
    with timing.add_time("a"):
        clock.advance(1)
    for made in (pickle.loads(pickle.dumps(timing)), copy.copy(timing), copy.deepcopy(timing)):
        with made.add_time("b"):
            pass
        assert "t" == made.name
        assert ["b"] == list(made)


def test_what_was_said_to_a_timing_travels() -> None:
    """A copy for another process keeps the original's switch and strictness."""
    off, strict = pickle.loads(pickle.dumps([Timing(enabled=False), Timing(strict=True)]))
    assert off.enabled is False
    assert strict._recording.strict is True


@pytest.mark.parametrize(
    "make",
    [
        lambda timing: timing.add_time("a"),
        lambda timing: timing.timeit("a"),
        lambda timing: timing.time_avg("a", 3),
        lambda timing: timing.add_time("a", waits_for="data", key="batch"),
    ],
    ids=["add_time", "timeit", "time_avg", "linked"],
)
def test_a_scope_is_pickled_with_its_timing(make: Callable[[Timing], Any]) -> None:
    """As in a decorated function that travels: it records in the copy, also if it was open."""
    timing = Timing("t")
    scope = make(timing)
    with scope:
        copied, copy_of_it = pickle.loads(pickle.dumps((timing, scope)))
    for _ in range(2):
        with copy_of_it:
            pass
    assert (2, 1) == (calls(copied, "a"), calls(timing, "a"))
    assert type(scope) is type(copy_of_it)


def test_a_scope_that_is_switched_off_is_pickled() -> None:
    """It stays off."""
    timing = Timing("t", enabled=False)
    copied, scope = pickle.loads(pickle.dumps((timing, timing.add_time("a"))))
    with scope:
        pass
    assert [] == list(copied)

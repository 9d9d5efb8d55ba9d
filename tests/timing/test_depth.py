"""Deep trees: places beyond a limit are folded, and nothing recurses over a tree."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from typing import Any

import pytest
from gpuprof_timing import Timing
from gpuprof_timing._recording import MAX_DEPTH
from support.manual_clock import Clock

DEEP = 10_000
"""Far more than Python recurses."""


def nest(timing: Timing, count: int) -> None:
    with ExitStack() as scopes:
        for number in range(count):
            scopes.enter_context(timing.add_time(f"key {number}"))


def record(depth: int) -> Timing:
    """A record of one place in another, `depth` deep, as a foreign file could have it."""
    timing = Timing("t", clock=lambda: 0)
    with timing.add_time("a"):
        pass
    data = timing.to_dict()
    innermost = data["children"][0]
    for _ in range(depth - 1):
        innermost["children"].append({**innermost, "children": []})
        innermost = innermost["children"][0]
    return Timing.from_dict(data)


def test_deeper_places_are_folded(timing: Timing, clock: Clock, caplog: Any) -> None:
    """Places beyond the limit share one at the end, which has their time once; it is said once."""
    with caplog.at_level(logging.WARNING, logger="gpuprof.timing"), ExitStack() as scopes:
        for number in range(600):
            scopes.enter_context(timing.add_time(f"key {number}"))
        clock.advance(1)
    assert [
        "t: places are more than 100 deep; deeper ones are folded into '(more)'"
    ] == caplog.messages
    assert [*(f"key {number}" for number in range(MAX_DEPTH)), "(more)"] == list(timing)
    assert {1.0} == set(timing.values())


def test_folded_scopes_of_every_kind_count(clock: Clock) -> None:
    """A fold takes all kinds, also where a place of two kinds is refused."""
    timing = Timing("t", clock=clock, strict=True)
    with ExitStack() as scopes:
        for number in range(MAX_DEPTH):
            scopes.enter_context(timing.add_time(f"key {number}"))
        for make in (timing.add_time, timing.timeit, timing.time_avg):
            with make(f"own {make.__name__}"):
                clock.advance(1)
    assert 3.0 == timing["(more)"]


def test_a_deep_tree_travels_as_json(timing: Timing) -> None:
    """The file of a process with deeply nested scopes is written, read and merged."""
    nest(timing, DEEP)
    read = Timing.from_dict(json.loads(json.dumps(timing.to_dict())))
    merged = Timing.merge([read, timing.snapshot()])
    assert MAX_DEPTH + 1 == len(merged) == len(timing.delta(Timing("empty").snapshot()))


@pytest.mark.parametrize(
    "read",
    [
        lambda timing: timing.to_dict(),
        lambda timing: timing.snapshot(),
        lambda timing: timing.delta(timing),
        lambda timing: Timing.merge([timing, timing]),
        lambda timing: timing.table("plain"),
        lambda timing: timing.metrics(),
        lambda timing: str(timing),
        lambda timing: timing.reset(),
    ],
    ids=["to_dict", "snapshot", "delta", "merge", "table", "metrics", "str", "reset"],
)
def test_nothing_recurses(read: Any) -> None:
    """A tree deeper than Python recurses can be read in every way."""
    read(record(1500))


def test_open_places_of_a_deep_tree(timing: Timing) -> None:
    """The innermost open place is found however deep it is, and those around it are not."""
    from gpuprof_timing._render import open_places

    with timing.add_time("a"), timing.add_time("b"), timing.add_time("c"):
        assert ["a/b/c"] == open_places(timing._recording.root)
    assert [] == open_places(record(1500)._recording.root)


class Nameless:
    """A key that is equal to no other, of the same name as all its kind."""

    def __str__(self) -> str:
        return "same"


def test_keys_of_one_name_and_new_identity_are_not_kept(timing: Timing) -> None:
    """A new key object for each scope fills no memory."""
    for _ in range(1000):
        with timing.add_time(Nameless()):  # type: ignore[arg-type]
            pass
    root = timing._recording.root
    assert 1000 == root.children["same"].count
    assert len(root.places) < 100


class Incomparable:
    """A key whose comparison raises, with the hash of a common key."""

    def __str__(self) -> str:
        return "incomparable"

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


@pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: (key, "b")], ids=["alone", "tuple"])
def test_a_key_that_cannot_be_compared_harms_no_other(enabled: bool, wrap: Any) -> None:
    """Scopes whose keys have the same hash as one that raises in `__eq__` go on."""
    timing = Timing("t", enabled=enabled)
    for make in (timing.add_time, timing.timeit, timing.time_avg):
        with make(wrap(Incomparable())):
            pass
        with make(wrap("a")):
            pass
    assert enabled == (str(wrap("a")) in timing)

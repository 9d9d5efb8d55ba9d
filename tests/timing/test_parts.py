"""A run cut into ordinary parts and parts that are kept apart."""

from __future__ import annotations

from typing import Any

from gpuprof_timing import Timing
from gpuprof_timing._parts import Parts
from hypothesis import given
from hypothesis import strategies as st
from support.manual_clock import Clock

Steps = list[tuple[bool, list[tuple[str, int]]]]
STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=4),
    ),
    max_size=8,
)


def made() -> tuple[Clock, Timing, Parts]:
    clock = Clock()
    timing = Timing("t", clock=clock)
    return clock, timing, Parts(timing)


def record(timing: Timing, clock: Clock, scopes: list[tuple[str, int]]) -> None:
    for key, seconds in scopes:
        with timing.add_time("step"), timing.time_avg(key, 3), timing.timeit("last"):
            clock.advance(seconds)


def without_ends(tree: Timing | None) -> list[dict[str, Any]]:
    """The places of a tree, without the times at which they ended."""

    def places(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(
            ({**node, "ended": 0, "children": places(node["children"])} for node in nodes),
            key=lambda node: str(node["key"]),
        )

    return places(tree.to_dict()["children"]) if tree is not None else []


@given(STEPS)
def test_each_kind_is_as_if_it_had_been_recorded_alone(steps: Steps) -> None:
    """Counts, totals, extremes, deviations and last values are those of its own steps."""
    clock, timing, parts = made()
    alone = {kind: Timing("t", clock=Clock()) for kind in (False, True)}
    for apart, scopes in steps:
        parts.cut(apart)
        record(timing, clock, scopes)
        record(alone[apart], alone[apart]._recording.clock, scopes)  # type: ignore[arg-type]
    ordinary, apart_tree = parts.trees()
    assert without_ends(alone[False]) == without_ends(ordinary)
    assert without_ends(alone[True]) == without_ends(apart_tree)


@given(STEPS)
def test_the_tree_that_is_cut_stays_whole(steps: Steps) -> None:
    """Whoever reads it in the job finds what it would have without a cut, extremes included."""
    clock, timing, parts = made()
    uncut = Timing("t", clock=Clock())
    for apart, scopes in steps:
        parts.cut(apart)
        record(timing, clock, scopes)
        record(uncut, uncut._recording.clock, scopes)  # type: ignore[arg-type]
    assert without_ends(uncut) == without_ends(timing)


def test_a_run_is_split_between_the_kinds() -> None:
    """Shares of a tree are shares of its own parts."""
    clock, _, parts = made()
    for apart, seconds in ((False, 3), (True, 2), (True, 2), (False, 1)):
        parts.cut(apart)
        clock.advance(seconds)
    ordinary, apart_tree = parts.trees()
    assert apart_tree is not None
    assert [4e9, 4e9] == [tree.to_dict()["run"] for tree in (ordinary, apart_tree)]


def test_a_run_without_a_cut_has_no_tree_apart() -> None:
    """As in nearly every process."""
    clock, timing, parts = made()
    record(timing, clock, [("a", 1)])
    ordinary, apart_tree = parts.trees()
    assert without_ends(timing) == without_ends(ordinary)
    assert apart_tree is None


def test_a_scope_that_is_open_across_cuts_is_split() -> None:
    """The main loop of a run: each tree has the time of its own parts; it counts where it ends."""
    clock, timing, parts = made()
    with timing.add_time("main"):
        for apart, seconds in ((False, 3), (True, 2), (False, 1)):
            parts.cut(apart)
            clock.advance(seconds)
        ordinary, apart_tree = parts.trees()
        assert apart_tree is not None
        assert (4.0, 2.0) == (ordinary["main"], apart_tree["main"])
    ordinary, apart_tree = parts.trees()
    assert apart_tree is not None
    assert (4.0, 2.0) == (ordinary["main"], apart_tree["main"])
    (node,) = ordinary.to_dict()["children"]
    four = 4 * 10**9
    assert (1, four, four, four) == tuple(
        node[name] for name in ("count", "total", "minimum", "maximum")
    )
    assert str(four * four) == node["squares"]


def test_a_scope_that_ends_in_the_other_kind_is_split() -> None:
    """One around `gpuprof.step`: begun just before the cut, it counts behind it."""
    clock, timing, parts = made()
    for apart in (False, True, False):
        with timing.add_time("step"):
            clock.advance(1)
            parts.cut(apart)
            clock.advance(2)
    ordinary, apart_tree = parts.trees()
    assert apart_tree is not None
    assert (6.0, 3.0) == (ordinary["step"], apart_tree["step"])
    # the first and the last scope end in ordinary parts
    assert [2, 1] == [tree.to_dict()["children"][0]["count"] for tree in (ordinary, apart_tree)]


def test_a_reset_begins_anew() -> None:
    """What the job throws away is in neither tree."""
    clock, timing, parts = made()
    for apart in (False, True):
        parts.cut(apart)
        record(timing, clock, [("a", 1)])
    timing.reset()
    record(timing, clock, [("b", 1)])
    ordinary, apart_tree = parts.trees()
    assert apart_tree is not None
    assert ([], ["step", "b", "last"]) == (list(ordinary), list(apart_tree))


def test_parts_from_a_snapshot_on() -> None:
    """A second run in a process has no part in what was before."""
    clock, timing, _ = made()
    record(timing, clock, [("a", 5)])
    parts = Parts(timing, timing.snapshot())
    record(timing, clock, [("b", 1)])
    parts.cut(True)
    ordinary, _ = parts.trees()
    assert {"step": 1.0, "b": 1.0, "last": 1.0} == dict(ordinary)

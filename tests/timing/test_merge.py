"""Merging, deltas and JSON: rules that hold for every tree."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from gpuprof_timing import Timing
from hypothesis import example, given
from hypothesis import strategies as st
from support.manual_clock import Clock

KINDS = {
    "add_time": lambda timing, key: timing.add_time(key),
    "timeit": lambda timing, key: timing.timeit(key),
    "time_avg": lambda timing, key: timing.time_avg(key, average=3),
}
DURATIONS = st.one_of(st.integers(0, 3), st.integers(0, 10**12))
# Each sample: where, in which kind, how long. Different kinds at one place occur, too: processes
# may disagree.
SAMPLES = st.lists(
    st.tuples(
        st.lists(st.sampled_from("ab/"), min_size=1, max_size=3),
        st.sampled_from(list(KINDS)),
        DURATIONS,
    ),
    max_size=8,
)
Samples = list[tuple[list[str], str, int]]


def record(timing: Timing, clock: Clock, samples: Samples) -> None:
    """Scopes in scopes; only the innermost takes time."""
    for path, kind, duration in samples:
        scopes = [KINDS[kind](timing, key) for key in path]
        for scope in scopes:
            scope.__enter__()
        clock.now += duration
        for scope in reversed(scopes):
            scope.__exit__(None, None, None)


def recorded(name: str, samples: Samples, held: str | None = None) -> Timing:
    """A tree of its own process, perhaps with a scope that is still open."""
    clock = Clock()
    timing = Timing(name, clock=clock)
    timing._wall = 0  # in place of the time of day
    record(timing, clock, samples)
    if held is not None:
        timing.add_time(held).__enter__()
        clock.now += 5
    return timing.snapshot()


TREES = st.builds(
    recorded,
    st.sampled_from(["one", "two", "three"]),
    SAMPLES,
    st.sampled_from([None, "a", "held"]),
)


def facts(timing: Timing) -> Any:
    """All but the title.

    Siblings stand in the order in which they were first met, which is no fact about time.
    """

    def ordered(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**node, "children": ordered(node["children"])}
            for node in sorted(nodes, key=lambda node: node["key"])
        ]

    data = timing.to_dict()
    return {**data, "name": "", "children": ordered(data["children"])}


def numbers(timing: Timing) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """Count, total, extremes and sum of squares for every place."""
    found = {}

    def visit(node: dict[str, Any], above: tuple[str, ...]) -> None:
        path = (*above, node["key"])
        found[path] = tuple(
            node[name] for name in ("count", "total", "minimum", "maximum", "squares")
        )
        for child in node["children"]:
            visit(child, path)

    for child in timing.to_dict()["children"]:
        visit(child, ())
    return found


@given(TREES, TREES)
def test_merging_is_commutative(first: Timing, second: Timing) -> None:
    """Which of two trees comes first does not matter."""
    assert facts(Timing.merge([first, second])) == facts(Timing.merge([second, first]))


@given(TREES, TREES, TREES)
def test_merging_is_associative(first: Timing, second: Timing, third: Timing) -> None:
    """Which of three trees were merged before does not matter."""
    left = Timing.merge([Timing.merge([first, second]), third])
    right = Timing.merge([first, Timing.merge([second, third])])
    assert facts(left) == facts(right) == facts(Timing.merge([first, second, third]))


@given(TREES, TREES)
def test_merging_leaves_its_trees_alone(first: Timing, second: Timing) -> None:
    """What was merged is as it was."""
    before = first.to_dict(), second.to_dict()
    Timing.merge([first, second])
    assert before == (first.to_dict(), second.to_dict())


@given(st.lists(SAMPLES, min_size=1, max_size=4))
def test_merging_is_recording_everything_in_one_tree(parts: list[Samples]) -> None:
    """Counts, totals, extremes and sums of squares of the parts are those of the whole."""
    one_kind = [[(path, "add_time", duration) for path, _, duration in part] for part in parts]
    merged = Timing.merge(
        recorded(f"process {number}", part) for number, part in enumerate(one_kind)
    )
    whole = recorded("whole", [sample for part in one_kind for sample in part])
    assert numbers(whole) == numbers(merged)


@given(st.lists(DURATIONS, min_size=1, max_size=20), st.integers(1, 19))
@example([10**9 - 1, 10**9 + 1], 1)
def test_the_deviation_is_that_of_exact_fractions(durations: list[int], cut: int) -> None:
    """Mean and deviation of merged parts are those of the definition, reckoned without rounding."""
    parts = [
        [(["a"], "add_time", duration) for duration in part]
        for part in (durations[:cut], durations[cut:])
    ]
    merged = Timing.merge(recorded("part", part) for part in parts)
    node = merged._recording.root.children["a"]
    mean = Fraction(sum(durations), len(durations))
    variance = sum((duration - mean) ** 2 for duration in durations) / len(durations)
    assert pytest.approx(float(mean) / 1e9, rel=1e-12) == node.mean()
    assert pytest.approx(float(variance) ** 0.5 / 1e9, rel=1e-12) == node.deviation()


@pytest.mark.parametrize("middle", [10**9, 10**12, 3_600 * 10**9])
def test_a_thousand_million_samples_lose_no_nanosecond(middle: int) -> None:
    """Merging a tree with itself thirty times keeps its deviation exact."""
    tree = recorded("process", [(["a"], "add_time", middle - 1), (["a"], "add_time", middle + 1)])
    for _ in range(30):
        tree = Timing.merge([tree, tree])
    node = tree._recording.root.children["a"]
    assert 2**31 == node.count
    assert 2**31 * middle == node.total
    assert 1e-9 == node.deviation()
    assert middle / 1e9 == node.mean()
    (data,) = json.loads(json.dumps(tree.to_dict()))["children"]
    assert str(2**31 * (middle * middle + 1)) == data["squares"]
    assert 2**30 == data["spread"]["processes"]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6, unique=True), st.randoms())
def test_the_spread_names_the_slowest_and_the_fastest(totals: list[int], random: Any) -> None:
    """Whatever the order and the grouping, the spread is of single processes."""
    trees = [recorded(f"process {total}", [(["a"], "add_time", total)]) for total in totals]
    while len(trees) > 1:
        random.shuffle(trees)
        trees = [Timing.merge(trees[:2]), *trees[2:]]
    spread = Timing.merge(trees).to_dict()["children"][0]["spread"]
    low, high = min(totals), max(totals)
    assert {
        "processes": len(totals), "minimum": low, "fastest": f"process {low}",
        "maximum": high, "slowest": f"process {high}",
    } == spread  # fmt: skip


def test_the_table_names_the_slowest() -> None:
    """A merged tree's table says whose total was the largest."""
    trees = [
        recorded(name, [(["a"], "add_time", seconds * 10**9)])
        for name, seconds in [("actor 0", 1), ("actor 1", 3)]
    ]
    assert "actor 1 (3.0000)" in Timing.merge(trees).table()


def test_processes_that_disagree_on_the_kind() -> None:
    """One place in two kinds has one kind after merging, whoever came first."""
    trees = [recorded("one", [(["a"], "timeit", 1)]), recorded("two", [(["a"], "add_time", 2)])]
    assert ["add_time"] * 2 == [
        Timing.merge(order).to_dict()["children"][0]["kind"] for order in (trees, trees[::-1])
    ]


def test_merged_averages_are_of_all_windows() -> None:
    """What a merged `time_avg` shows is the mean of the samples in the windows of all processes."""
    first = recorded("one", [(["a"], "time_avg", seconds * 10**9) for seconds in (100, 1, 2, 3)])
    second = recorded("two", [(["a"], "time_avg", 6 * 10**9)])
    assert 3.0 == Timing.merge([first, second])["a"]


def test_a_live_tree_goes_on_after_merging() -> None:
    """A tree that still records is merged as it is now, and what it records later is its own."""
    clock = Clock()
    live = Timing(clock=clock)
    record(live, clock, [(["a"], "add_time", 10**9)])
    merged = Timing.merge([live])
    record(live, clock, [(["a"], "add_time", 10**9)])
    assert 1.0 == merged["a"]
    assert 2.0 == live["a"]


def test_merging_takes_its_trees_one_by_one() -> None:
    """A generator of trees is read once, and none is asked for before the last was taken."""
    merged = Timing.merge(
        recorded(f"process {number}", [(["a"], "add_time", 1)]) for number in range(100)
    )
    assert 100 == merged.to_dict()["children"][0]["count"]


@pytest.mark.parametrize(
    "use", [lambda data: Timing.merge([data]), Timing("t").delta], ids=["merge", "delta"]
)
def test_a_tree_as_data_is_not_taken_for_a_timing(use: Any) -> None:
    """Of `json.load(file)` without `from_dict` around it the error says what is missing."""
    with pytest.raises(
        TypeError,
        match=r"a dict is no Timing; what to_dict or a file has is read by Timing\.from_dict$",
    ):
        use(Timing("t").to_dict())


def test_shares_of_merged_trees_are_of_all_processes() -> None:
    """Two processes that trained half of the time make a table that says half, not all of it."""
    clock = Clock()
    trees = [Timing(f"process {number}", clock=clock) for number in range(2)]
    for tree in trees:
        with tree.add_time("train"):
            clock.advance(1)
    merged = Timing.merge([Timing.merge(trees[:1]), trees[1]])
    assert 2 == merged["train"]
    assert 4 == merged.to_dict()["run"] / 10**9
    _, row = (line.split("\t") for line in merged.table("tsv").splitlines())
    assert ["50.0", "50.0"] == [cell.strip() for cell in row[7:9]]


@given(SAMPLES, SAMPLES)
def test_a_delta_is_what_was_recorded_after(before: Samples, after: Samples) -> None:
    """Counts, totals and sums of squares since a snapshot are those of a tree that began then."""
    clock = Clock()
    timing = Timing(clock=clock)
    record(timing, clock, before)
    snapshot = timing.snapshot()
    began = clock.now
    record(timing, clock, after)
    delta = timing.delta(snapshot)
    expected = {
        path: (count, total, squares)
        for path, (count, total, _, _, squares) in numbers(recorded("", after)).items()
    }
    assert expected == {
        path: (count, total, squares)
        for path, (count, total, _, _, squares) in numbers(delta).items()
    }
    assert clock.now - began == delta.to_dict()["run"]


@given(SAMPLES)
def test_a_delta_of_nothing_is_empty(samples: Samples) -> None:
    """No time since the snapshot: no place."""
    timing = recorded("", samples)
    assert {} == dict(timing.delta(timing.snapshot()))


def test_a_delta_across_a_reset_is_the_new_tree() -> None:
    """After a reset the delta is the whole tree, with its extremes."""
    clock = Clock()
    timing = Timing("t", clock=clock)
    for seconds in (4, 1):
        clock.advance(1)
        with timing.add_time("a"):
            clock.advance(seconds)
        if seconds == 4:
            before = timing.snapshot()
            timing.reset()
    delta = timing.delta(before).to_dict()
    assert timing.to_dict() == delta
    assert 2 * 10**9 == delta["run"]


def test_a_delta_from_a_snapshot_that_was_written() -> None:
    """A file does not say which tree it is of: it is taken for the same."""
    timing = Timing("t", clock=iter(range(0, 10**12, 10**9)).__next__)
    with timing.add_time("a"):
        pass
    before = Timing.from_dict(timing.snapshot().to_dict())
    with timing.add_time("a"):
        pass
    assert 1.0 == timing.delta(before)["a"]


def test_a_delta_takes_an_open_scope_from_the_snapshot_on() -> None:
    """The delta excludes an open scope's time before the snapshot, ended or not."""
    clock = Clock()
    timing = Timing(clock=clock)
    outer, inner = timing.add_time("outer"), timing.add_time("inner")
    with outer:
        with inner:
            clock.now += 5 * 10**9
            snapshot = timing.snapshot()
            clock.now += 10**9
        clock.now += 2 * 10**9
        delta = timing.delta(snapshot)
    assert {"outer": 3.0, "inner": 1.0} == dict(delta)


def test_a_delta_has_a_scope_that_is_still_open() -> None:
    """A scope that began after the snapshot and goes on is in the delta as far as it got."""
    clock = Clock()
    timing = Timing(clock=clock)
    snapshot = timing.snapshot()
    with timing.add_time("a"):
        clock.now += 10**9
        delta = timing.delta(snapshot)
    assert {"a": 1.0} == dict(delta)


def test_a_delta_has_a_scope_that_was_open_all_the_time() -> None:
    """A scope that began before the snapshot and goes on is in the delta with the time since."""
    clock = Clock()
    timing = Timing(clock=clock)
    with timing.add_time("a"):
        clock.now += 5 * 10**9
        snapshot = timing.snapshot()
        clock.now += 10**9
        delta = timing.delta(snapshot)
    assert {"a": 1.0} == dict(delta)


def test_merged_deltas_invent_no_extremes() -> None:
    """Extremes that one of two trees does not know are not known of both."""
    clock = Clock()
    timing = Timing(clock=clock)
    record(timing, clock, [(["a"], "add_time", 7 * 10**9)])
    snapshot = timing.snapshot()
    record(timing, clock, [(["a"], "add_time", 5 * 10**9)])
    other = recorded("other", [(["a"], "add_time", 6 * 10**9)])
    merged = Timing.merge([timing.delta(snapshot), other])
    assert not merged._recording.root.children["a"].has_extremes


@given(TREES)
def test_a_dict_loses_nothing(tree: Timing) -> None:
    """A tree is the same after a way through JSON, in all that it can say."""
    back = Timing.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert (tree.to_dict(), str(tree), tree.table(), dict(tree), tree.metrics()) == (
        back.to_dict(), str(back), back.table(), dict(back), back.metrics(),
    )  # fmt: skip


@given(st.lists(TREES, max_size=3))
def test_a_dict_of_a_merged_tree_loses_nothing(trees: list[Timing]) -> None:
    """A merged tree's spread, windows and open scopes survive JSON and further merging."""
    merged = Timing.merge(trees)
    back = Timing.from_dict(json.loads(json.dumps(merged.to_dict())))
    assert merged.to_dict() == back.to_dict()
    assert facts(Timing.merge([merged, merged])) == facts(Timing.merge([back, back]))


@given(
    st.lists(st.lists(st.text("a/%25F", max_size=4), min_size=1, max_size=3), max_size=8),
    st.text("a/%", max_size=3),
)
@example([["a/b"], ["a", "b"], ["a%2Fb"], ["a%252Fb"], [""], ["", "a"], ["a", ""]], "")
def test_metrics_never_collide(paths: list[list[str]], prefix: str) -> None:
    """Every place has a metric of its own, whatever slashes and percent signs its keys have."""
    timing = recorded("", [(path, "add_time", 1) for path in paths])
    names = timing.metrics(prefix)
    assert len(numbers(timing)) == len(names)
    assert all(name.startswith(prefix) for name in names)

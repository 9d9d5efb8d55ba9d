"""The tree: what is counted where, and what is shown of it.

Every time comes from an injected clock.
"""

from __future__ import annotations

import logging
import pickle
import threading

import pytest
from gpuprof_timing import Timing
from support.manual_clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timing(clock: Clock) -> Timing:
    return Timing("Learner 0 profile", clock=clock)


def test_layout_is_sample_factorys(timing: Timing, clock: Clock) -> None:
    """Leaves share a line, what has children follows with its own below it, four decimals."""
    for key, seconds in [("misc", 0.0024), ("prepare_batch", 8.0517)]:
        with timing.add_time(key):
            clock.advance(seconds)
    with timing.add_time("train"):
        with timing.add_time("calculate_losses"):
            with timing.add_time("losses_init"):
                clock.advance(0.0021)
            with timing.add_time("bptt"), timing.add_time("bptt_forward_core"):
                clock.advance(0.9263)
            with timing.add_time("tail"):
                clock.advance(0.3432)
        with timing.add_time("epoch_init"):
            clock.advance(0.0037)
        with timing.add_time("update"), timing.add_time("clip"):
            clock.advance(0.8172)
        with timing.add_time("after_optimizer"):
            clock.advance(12.5617)
    expected = """\
Learner 0 profile tree view:
misc: 0.0024, prepare_batch: 8.0517
train: 14.6542
  epoch_init: 0.0037, after_optimizer: 12.5617
  calculate_losses: 1.2716
    losses_init: 0.0021, tail: 0.3432
    bptt: 0.9263
      bptt_forward_core: 0.9263
  update: 0.8172
    clip: 0.8172"""
    assert expected == str(timing)


def test_what_is_outside_of_the_inner_scopes_is_shown(timing: Timing, clock: Clock) -> None:
    """From 5 % of the scope on, behind the leaves; `str` keeps Sample Factory's layout."""
    with timing.add_time("train"):
        with timing.add_time("forward"):
            clock.advance(94)
        clock.advance(6)
    with timing.add_time("load"):
        with timing.add_time("read"), timing.add_time("decode"):
            clock.advance(95)
        clock.advance(5)
    expected = """\
Learner 0 profile tree view:
train: 100.0000
  forward: 94.0000, (other): 6.0000
load: 100.0000
  read: 95.0000
    decode: 95.0000"""
    assert expected == timing.text()
    assert expected.replace(", (other): 6.0000", "") == str(timing)
    assert "  (other): 5.0000\n  read" in timing.text(other=0.01)


def test_the_rest_of_a_mean_is_not_shown(timing: Timing, clock: Clock) -> None:
    """What `time_avg` and `timeit` show is no sum, so nothing can be left of it."""
    for kind in (timing.time_avg, timing.timeit):
        with kind("a"):
            with timing.add_time("b"):
                clock.advance(1)
            clock.advance(1)
    assert "(other)" not in timing.text()


def test_timeit_shows_the_last(timing: Timing, clock: Clock) -> None:
    """`timeit` shows the duration of the scope that ended last, wherever in the tree it lies."""
    with timing.timeit("a"):
        clock.advance(1)
    with timing.add_time("b"), timing.timeit("a"):
        clock.advance(2)
    with timing.timeit("a"):
        clock.advance(4)
    assert 4.0 == timing["a"]


def test_time_avg_is_the_mean_of_its_window(timing: Timing, clock: Clock) -> None:
    """`time_avg` forgets what lies before its window."""
    for seconds in (100, 2, 4):
        with timing.time_avg("a", average=2):
            clock.advance(seconds)
    assert 3.0 == timing["a"]


def test_time_avg_needs_a_window() -> None:
    """A window of nothing is refused where it is asked for."""
    with pytest.raises(ValueError, match="average=0: expected at least 1"):
        Timing().time_avg("a", average=0)


def test_one_key_at_two_places(timing: Timing, clock: Clock) -> None:
    """Each place is a node of its own; flat access sums the places."""
    with timing.add_time("a"), timing.add_time("step"):
        clock.advance(1)
    with timing.add_time("b"), timing.add_time("step"):
        clock.advance(2)
    assert "a: 1.0000\n  step: 1.0000\nb: 2.0000\n  step: 2.0000" in str(timing)
    assert 3.0 == timing["step"]


def test_recursion_is_timed_once(timing: Timing, clock: Clock) -> None:
    """A scope inside one of the same key adds a call and no time."""

    @timing.add_time("descend")
    def descend(depth: int) -> None:
        clock.advance(1)
        if depth:
            descend(depth - 1)

    descend(2)
    node = timing.to_dict()["children"][0]
    assert 3.0 == timing["descend"]
    assert 3 == node["count"]
    assert [] == node["children"]


def test_flat_access_counts_no_second_twice(timing: Timing, clock: Clock) -> None:
    """A key below itself, with another between, lies inside the outer one's time already."""
    with timing.add_time("a"), timing.add_time("b"), timing.add_time("a"):
        clock.advance(1)
    assert 1.0 == timing["a"]


def test_an_exception_is_counted_and_passes(timing: Timing, clock: Clock) -> None:
    """A scope left by an exception is closed and counted; the next one has its own place."""
    with pytest.raises(KeyError), timing.add_time("outer"), timing.add_time("inner"):
        clock.advance(1)
        raise KeyError
    with timing.add_time("after"):
        clock.advance(2)
    assert "after: 2.0000\nouter: 1.0000\n  inner: 1.0000" in str(timing)


def test_access_as_mapping_and_attribute(timing: Timing, clock: Clock) -> None:
    """Seconds by item and by attribute; keys in the order of the tree's levels."""
    with timing.add_time("a"), timing.add_time("c"):
        clock.advance(1)
    with timing.add_time("b"):
        clock.advance(2)
    assert {"a": 1.0, "b": 2.0, "c": 1.0} == dict(timing)
    assert 1.0 == timing.a
    assert 2.0 == timing.get("b")
    assert "missing" not in timing
    with pytest.raises(KeyError, match="missing"):
        timing["missing"]
    with pytest.raises(
        AttributeError, match="'Learner 0 profile' has no attribute and no key 'missing'"
    ):
        _ = timing.missing


def test_a_key_never_hides_a_method(timing: Timing, clock: Clock) -> None:
    """A key that is a method's name is reached as an item."""
    with timing.add_time("add_time"):
        clock.advance(1)
    assert 1.0 == timing["add_time"]
    assert callable(timing.add_time)


def test_a_slash_is_part_of_the_key(timing: Timing, clock: Clock) -> None:
    """Keys are opaque."""
    with timing.add_time("actor/run_training"):
        clock.advance(1)
    assert "actor/run_training: 1.0000" in str(timing)
    assert ["actor/run_training"] == list(timing)


def test_flat_str(timing: Timing, clock: Clock) -> None:
    """Every key once, on one line."""
    with timing.add_time("a"), timing.add_time("b"):
        clock.advance(1.5)
    assert "a: 1.5000, b: 1.5000" == timing.flat_str()


def test_first_kind_wins(timing: Timing, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """A second kind at the same place is said once and changes nothing."""
    with timing.add_time("a"):
        clock.advance(1)
    with caplog.at_level(logging.WARNING, logger="gpuprof.timing"):
        for _ in range(2):
            with timing.timeit("a"):
                clock.advance(2)
    assert 5.0 == timing["a"]
    assert [
        "Learner 0 profile: 'a' is shown as add_time, the first use; timeit there is ignored"
    ] == caplog.messages


def test_an_open_scope_cannot_be_entered_again(timing: Timing) -> None:
    """One scope object has one start."""
    scope = timing.add_time("a")
    with scope, pytest.raises(RuntimeError, match="'a'"):
        scope.__enter__()


def test_a_closed_scope_can_be_entered_again(timing: Timing, clock: Clock) -> None:
    """Keeping the scope of a hot loop is allowed."""
    scope = timing.add_time("a")
    for _ in range(3):
        with scope:
            clock.advance(1)
    assert 3.0 == timing.a


def test_threads_lose_no_call() -> None:
    """Counts and totals are exact when many threads use one node."""
    timing = Timing(clock=lambda: 0)

    def work() -> None:
        for _ in range(20_000):
            with timing.add_time("a"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 80_000 == timing.to_dict()["children"][0]["count"]


def test_dict_round_trip(timing: Timing, clock: Clock) -> None:
    """Nothing is lost on the way through `to_dict`."""
    with timing.add_time("a"), timing.time_avg("b", average=3):
        clock.advance(1)
    with timing.timeit("c"):
        clock.advance(2)
    assert timing.to_dict() == Timing.from_dict(timing.to_dict()).to_dict()
    assert str(timing) == str(Timing.from_dict(timing.to_dict()))


def test_dict_of_another_version_is_refused() -> None:
    """A tree from the future is not guessed at."""
    with pytest.raises(ValueError, match="version 99"):
        Timing.from_dict({"version": 99, "name": "x", "children": []})


def test_a_timing_travels_empty(timing: Timing, clock: Clock) -> None:
    """Another process measures its own time."""
    with timing.add_time("a"):
        clock.advance(1)
    copy = pickle.loads(pickle.dumps(timing))
    assert "Learner 0 profile" == copy.name
    assert {} == dict(copy)


def test_only_a_scope_that_has_ended_has_a_time_of_its_end() -> None:
    """`timeit` notes when its last scope ended; 0 stands for no time, and is never a date."""
    timing = Timing(clock=iter(range(10**9, 10**11, 10**9)).__next__)
    with timing.add_time("sum"), timing.time_avg("mean"), timing.timeit("last"):
        pass
    timing.timeit("open").__enter__()
    found = {}
    pending = timing.to_dict()["children"]
    while pending:
        node = pending.pop()
        found[node["key"]] = node["ended"]
        pending += node["children"]
    assert {"sum": 0, "mean": 0, "open": 0} == {key: found[key] for key in ("sum", "mean", "open")}
    assert found["last"] > 0

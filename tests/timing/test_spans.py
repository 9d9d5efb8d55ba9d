"""Spans and folds: all calls of the tree, in bounded number."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from gpuprof_timing import Timing, _spans
from gpuprof_timing._node import Node
from gpuprof_timing._spans import LINKED_ROOM, ROOM, TOP_ROOM, Linked, SpanLog, Taken
from hypothesis import given
from hypothesis import strategies as st
from support.manual_clock import Clock


@pytest.fixture
def log(clock: Clock) -> Iterator[SpanLog]:
    """A log that records, in a process that marks steps."""
    log = SpanLog(clock)
    log.begin()
    log.spare()
    yield log
    log.end()


def call(timing: Timing, clock: Clock, key: str = "a", times: int = 1) -> None:
    """Scopes of a second each, beside each other."""
    for _ in range(times):
        with timing.add_time(key):
            clock.advance(1)


def seconds(taken: Taken) -> list[tuple[float, float]]:
    """The kept calls."""
    return [(start / 1e9, end / 1e9) for start, end in zip(taken.starts, taken.ends, strict=True)]


def path(node: Node) -> tuple[str, ...]:
    """The keys from the top to a node."""
    return () if node.parent is None else (*path(node.parent), node.key)


def test_a_call_is_a_span_in_its_thread(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """It has its node, its start, its end and the thread's id."""
    call(timing, clock)
    taken = log.take()
    assert ["a"] == [node.key for node in taken.nodes]
    assert [(0.0, 1.0)] == seconds(taken)
    assert [threading.get_ident()] == taken.tracks


def test_what_is_taken_comes_once(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """The next call has what was recorded since."""
    call(timing, clock)
    log.take()
    call(timing, clock)
    assert [(1.0, 2.0)] == seconds(log.take())


def test_calls_beyond_the_room_are_folded(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """The fold has their number, their time, the first start and the last end."""
    call(timing, clock, times=ROOM + 3)
    taken = log.take()
    assert ROOM == len(taken.nodes)
    assert [("a", 3, 3 * 10**9, ROOM * 10**9, (ROOM + 3) * 10**9)] == [
        (fold.node.key, *fold[1:5]) for fold in taken.folds
    ]


@pytest.mark.parametrize("edge", ["mark", "take"])
def test_an_edge_makes_room(timing: Timing, clock: Clock, log: SpanLog, edge: str) -> None:
    """Each step has its own spans, and each second, also inside a scope that stays open."""
    found = 0
    with timing.add_time("main loop"):
        for _ in range(3):
            call(timing, clock, times=ROOM + 1)
            if edge == "mark":
                log.mark("step")
            else:
                found += len(log.take().nodes)
    assert 3 * ROOM + 1 == found + len(log.take().nodes)


def test_the_end_of_a_top_level_scope_makes_room_below(
    timing: Timing, clock: Clock, log: SpanLog
) -> None:
    """Without steps, each call of the worker's method has its own spans."""
    for _ in range(3):
        with timing.add_time("method"):
            call(timing, clock, times=ROOM + 1)
    assert 3 * ROOM == [node.key for node in log.take().nodes].count("a")


def test_without_steps_the_top_level_has_more_room(timing: Timing, clock: Clock) -> None:
    """A caller elsewhere may have hundreds of steps in the second; the first mark ends that."""
    log = SpanLog(clock)
    log.begin()
    call(timing, clock, times=TOP_ROOM + 1)
    before = log.take()
    log.mark("step")
    call(timing, clock, times=ROOM + 1)
    log.end()
    assert (TOP_ROOM, 1) == (len(before.nodes), before.folds[0].calls)
    assert ROOM == len(log.take().nodes)


def test_a_place_with_links_has_more_room(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """A link that is folded could not be followed."""
    for _ in range(LINKED_ROOM + 1):
        with timing.add_time("a", waits_for="B"):
            clock.advance(1)
    assert LINKED_ROOM == len(log.take().nodes)


def test_deep_places_can_be_left_out(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """Old ones and new ones alike; those above go on."""
    log.thin(2)
    with timing.add_time("top"):
        call(timing, clock)
    assert ["top"] == [node.key for node in log.take().nodes]


def test_threads_have_tracks_of_their_own(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """A span is on the track of the thread in which it began."""
    found: list[int] = []

    def work() -> None:
        call(timing, clock)
        found.append(threading.get_ident())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    call(timing, clock)
    assert [*found, threading.get_ident()] == log.take().tracks


def test_tasks_have_tracks_of_their_own(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """Two tasks whose scopes overlap in one thread are told apart."""

    async def work() -> None:
        with timing.add_time("a"):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(work(), work())

    asyncio.run(main())
    one, other = log.take().tracks
    assert isinstance(one, tuple)
    assert isinstance(other, tuple)
    assert one[0] == other[0] == threading.get_ident()
    assert one != other


def test_a_scope_can_get_links(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """Whoever waits puts what it waits for into the scope's track."""
    with timing.add_time("wait") as scope:
        scope.track = Linked(threading.get_ident(), "waits", ("key",))
    (track,) = log.take().tracks
    assert isinstance(track, Linked)
    assert ("waits", ("key",)) == (track.role, track.keys)


def test_a_tree_with_another_clock_is_not_recorded(clock: Clock, log: SpanLog) -> None:
    """Its times would mean nothing beside the others."""
    call(Timing("t", clock=Clock()), clock)
    assert [] == log.take().nodes


def test_one_log_at_a_time(log: SpanLog) -> None:
    """A second one is refused."""
    with pytest.raises(RuntimeError, match="another SpanLog records"):
        SpanLog().begin()


def test_nothing_is_recorded_after_the_end(timing: Timing, clock: Clock) -> None:
    """What was recorded before can still be taken."""
    log = SpanLog(clock)
    log.begin()
    call(timing, clock)
    log.end()
    call(timing, clock)
    assert [(0.0, 1.0)] == seconds(log.take())


def test_memory_is_bounded(timing: Timing, clock: Clock) -> None:
    """If nobody takes the spans, later calls are folded, and later marks are counted."""
    log = SpanLog(clock, most=2 * ROOM)
    log.begin()
    for step in range(100):
        log.mark(step)
        call(timing, clock, times=ROOM)
    log.end()
    taken = log.take()
    assert 3 * ROOM == len(taken.nodes)
    assert 97 * ROOM == sum(fold.calls for fold in taken.folds)
    assert (2 * ROOM, 100 - 2 * ROOM) == (len(taken.marks), taken.lost)


def test_a_forked_child_records_nothing(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """It is another process; the parent's log goes on."""
    with timing.add_time("around"):
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                call(timing, clock)
            os._exit(len(log.take().nodes) + (_spans.recorder.interval is not None))
        _, status = os.waitpid(child, 0)
    assert 0 == status
    assert ["around"] == [node.key for node in log.take().nodes]


Program = list[Any]
"""Calls ``(key, raises, inside)``, equal calls ``(key, times)``, repetitions ``(times, inside)``,
threads ``("thread", inside)``, and other events by their names."""
_KEYS = st.sampled_from("abc")
PROGRAMS: st.SearchStrategy[Program] = st.recursive(
    st.lists(st.sampled_from(["mark", "note", "take", "reset", "tick"]), max_size=3),
    lambda inside: st.lists(
        st.one_of(
            st.tuples(_KEYS, st.booleans(), inside),
            st.tuples(_KEYS, st.integers(10, 40)),
            st.tuples(st.integers(2, 40), inside),
            st.tuples(st.just("thread"), inside),
            st.sampled_from(["mark", "take", "tick"]),
        ),
        max_size=4,
    ),
    max_leaves=12,
)


class Runner:
    """Runs a program, and notes by itself which calls take time, where and when."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.timing = Timing("t", clock=self.clock)
        self.log = SpanLog(self.clock)
        self.calls: list[tuple[tuple[str, ...], int, int]] = []
        self.taken: list[Taken] = []
        self.epoch = 0
        self.left = 2_000  # so that repetitions inside each other end

    def run(self, program: Program, around: tuple[str, ...], epoch: int) -> None:
        for each in program:
            if isinstance(each, str):
                self.happen(each)
            elif each[0] == "thread":
                thread = threading.Thread(target=self.run, args=(each[1], (), self.epoch))
                thread.start()
                thread.join()
            elif len(each) == 2 and isinstance(each[0], str):
                for _ in range(each[1]):
                    self.run([(each[0], False, [])], around, epoch)
            elif len(each) == 2:
                for _ in range(each[0]):
                    self.run(each[1], around, epoch)
            elif self.left:
                self.left -= 1
                self.call(*each, around if epoch == self.epoch else ())

    def call(self, key: str, raises: bool, inside: Program, around: tuple[str, ...]) -> None:
        recursion = around[-1:] == (key,)
        where = around if recursion else (*around, key)
        start = self.clock.now
        with suppress(KeyError), self.timing.add_time(key):
            self.clock.now += 1
            self.run(inside, where, self.epoch)
            if raises:
                raise KeyError
        if not recursion:
            self.calls.append((where, start, self.clock.now))

    def happen(self, what: str) -> None:
        if what == "mark":
            self.log.mark(None)
        elif what == "note":
            self.log.note(None)
        elif what == "take":
            self.taken.append(self.log.take())
        elif what == "reset":
            self.timing.reset()
            self.epoch += 1
        else:
            self.clock.now += 7


@given(PROGRAMS, st.booleans())
def test_spans_and_folds_are_all_calls_of_the_tree(program: Program, spare: bool) -> None:
    """Each call is a span of its own or in one fold, with its time, whatever the program does."""
    runner = Runner()
    runner.log.begin()
    if spare:
        runner.log.spare()
    try:
        runner.run(program, (), 0)
    finally:
        runner.log.end()
    runner.taken.append(runner.log.take())
    left = Counter(runner.calls)
    for taken in runner.taken:
        for node, start, end in zip(taken.nodes, taken.starts, taken.ends, strict=True):
            left[path(node), start, end] -= 1
    assert not any(count < 0 for count in left.values()), "a span that was no call"
    folded = Counter[tuple[str, ...]]()
    busy = Counter[tuple[str, ...]]()
    for (where, start, end), count in left.items():
        folded[where] += count
        busy[where] += count * (end - start)
    folds = [fold for taken in runner.taken for fold in taken.folds]
    found, took = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for fold in folds:
        found[path(fold.node)] += fold.calls
        took[path(fold.node)] += fold.busy
        assert any((path(fold.node), fold.start) == each[:2] for each in runner.calls)
        assert any((path(fold.node), fold.end) == (each[0], each[2]) for each in runner.calls)
    assert +folded == found
    assert +busy == +took


def test_threads_at_once_lose_no_call(timing: Timing, clock: Clock, log: SpanLog) -> None:
    """Four threads share a place while another one takes what was recorded."""
    over = threading.Event()
    taken: list[Taken] = []

    def drain() -> None:
        while not over.is_set():
            taken.append(log.take())

    def work() -> None:
        for _ in range(3_000):
            with timing.add_time("a"):
                pass

    drainer = threading.Thread(target=drain)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in (drainer, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    drainer.join()
    taken.append(log.take())
    kept = sum(len(each.nodes) for each in taken)
    assert 12_000 == kept + sum(fold.calls for each in taken for fold in each.folds)

"""The compiled hot path does what the Python one does: the same programs on both, side by side."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
import itertools
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType
from typing import Any

import gpuprof_timing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.both_timings import both

pytestmark = pytest.mark.skipif(
    not gpuprof_timing.compiled, reason="gpuprof_timing is in Python here"
)

FAR = 2**61
LINK = struct.Struct("<qqq8sQ")


class Phase(enum.Enum):
    """Keys that are no strings."""

    LOAD = 1


class Alarm(Exception):
    """What a signal's handler raises."""


class Ticking:
    """A clock that moves whenever it is read, so that one reading more or less is seen.

    Beyond `FAR`, where the compiled path may read it twice, it stands still.
    """

    def __init__(self) -> None:
        self.now = 0
        self.alarm = False

    def __call__(self) -> int:
        if self.alarm:
            self.alarm = False
            raise Alarm
        if self.now < FAR:
            self.now += 1
        return self.now


class Actor:
    """A thread, the copied context that it works in if any, and the scopes that it has open."""

    def __init__(self, thread: int, copied: contextvars.Context | None) -> None:
        self.thread = thread
        self.copied = copied
        self.open: list[Any] = []


class Side:
    """One of the two, and what a program has made of it."""

    def __init__(self, package: ModuleType, threads: list[ThreadPoolExecutor]) -> None:
        self.threads = threads
        self.clock = Ticking()
        self.timing = package.Timing("t", clock=self.clock)
        self.timing._wall = 0
        self.log = package._spans.SpanLog(self.clock)
        self.actors = [Actor(thread, None) for thread in range(len(threads))]
        self.kept: dict[Any, Any] = {}
        self.taken: list[Any] = []
        self.recording = False
        self.package = package
        self.ranges: list[Any] = []
        self.faults: list[Exception] = []
        self.opener: Any = None

    def do(self, actor: Actor, call: Callable[[], Any]) -> str:
        """What came of a call in the actor's thread and context."""
        try:
            if actor.copied is not None:
                call = partial(actor.copied.run, call)
            return type(self.threads[actor.thread].submit(call).result()).__name__
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def step(self, action: str, who: int, which: int, key: Any, kind: str) -> object:
        """Do one thing; what can be seen of it."""
        actor = self.actors[who % len(self.actors)]
        if action == "enter":
            scope = self.make(kind, key)
            actor.open.append(scope)
            return self.do(actor, scope.__enter__)
        if action == "keep":  # entered again while it is open, it refuses
            scope = self.kept.setdefault((kind, key), self.make(kind, key))
            actor.open.append(scope)
            return self.do(actor, scope.__enter__)
        if action == "leave" and actor.open:
            scope = actor.open.pop(which % len(actor.open))
            error = ValueError() if which % 2 else None
            return self.do(actor, partial(scope.__exit__, type(error), error, None))
        if action == "call":

            def inner(depth: int) -> None:
                if depth:
                    outer(depth - 1)

            outer = self.make(kind, key)(inner)
            return self.do(actor, partial(outer, which % 4))
        if action == "inside":  # of a linked scope, again where it is known
            link = [None, "batch", b"a batch.", ("a", b"b"), (b"batch: 1", b"batch: 2"), str, int][
                which % 7
            ]
            waits_for = [None, "nothing", "barrier", "data"][which % 4]
            work: Any = [str, int, partial(self.make("linked", "x").__enter__)][which % 3]
            call = partial(
                self.package._linked.call_linked, self.timing._recording, str(key), waits_for, link
            )
            around = self.make(kind, key)

            def inside() -> None:
                for _ in range(2):
                    with contextlib.suppress(ValueError), around:
                        call(work, ("x",) if work is int else (), {}, self.faults.append)

            return self.do(actor, inside)
        if action == "burst":  # more than there is room for

            def burst() -> None:
                for _ in range(17 + which):
                    with self.make(kind, key):
                        pass

            return self.do(actor, burst)
        if action == "loop":
            return self.do(actor, lambda: asyncio.run(self.tasks(kind, key)))
        if action == "copy":
            copied = self.threads[actor.thread].submit(contextvars.copy_context).result()
            self.actors.append(Actor((actor.thread + 1) % len(self.threads), copied))
        elif action == "alarm":
            self.clock.alarm = True
            if which % 2 or not actor.open:
                scope = self.make(kind, key)
                actor.open.append(scope)
                done = self.do(actor, scope.__enter__)
            else:
                scope = actor.open.pop()
                done = self.do(actor, partial(scope.__exit__, None, None, None))
            self.clock.alarm = False
            return done
        elif action == "wait":
            self.clock.now += 2 ** (which % 3 * 20) if which < 9 or self.recording else FAR
        elif action == "reset":
            return self.do(actor, self.timing.reset)
        elif action == "switch":
            self.timing.enabled = not self.timing.enabled
        elif action == "record":
            if self.clock.now < FAR and not self.recording:  # rows of spans have 64 bits
                self.recording = True
                self.log.begin()
        elif action == "ranges":
            self.opener = self.open_range if self.opener is None else None
            self.package.set_range_opener(self.opener)
        elif action == "mark":
            self.log.mark(which)
        elif action == "sent":
            return self.do(actor, partial(self.log.note_sent, which, b"call", (b"another",)))
        elif action == "take":
            self.taken.append(self.spans())
        return None

    @contextlib.contextmanager
    def open_range(self, name: str, crosses_tasks: bool) -> Iterator[None]:
        self.ranges.append((name, crosses_tasks, self.clock()))
        try:
            yield
        finally:
            self.ranges.append((name, "ends", self.clock()))

    def make(self, kind: str, key: Any) -> Any:
        if kind == "time_avg":
            return self.timing.time_avg(key, 3)
        if kind == "linked":
            return self.timing.add_time(key, waits_for="data", key="batch")
        return getattr(self.timing, kind)(key)

    async def tasks(self, kind: str, key: Any) -> None:
        """Tasks that take turns inside their scopes."""

        async def task(turns: int) -> None:
            for _ in range(turns):
                with self.make(kind, key), self.make("add_time", "inner"):
                    await asyncio.sleep(0)

        with self.make("add_time", "around"):
            await asyncio.gather(task(1), task(2))
            with self.make(kind, key):
                await asyncio.to_thread(lambda: self.make(kind, key).__enter__())

    def spans(self) -> object:
        """What the log has, with places for nodes and without the threads' ids."""
        taken = self.log.take()
        places = {node: number for number, node in enumerate(dict.fromkeys(taken.nodes))}
        # by type: a task may get the id of one that is gone, or not
        bare = [getattr(track, "track", track) for track in taken.tracks]
        tracks = {track: len(type(track).__name__) << 32 for track in bare}
        known = {track: number for track, number in tracks.items() if type(track) is int}
        links: list[bytes] = []

        def code_of(node: Any, start: int, end: int, track: Any) -> int:
            code: int = places[node] + tracks[getattr(track, "track", track)]
            for key in getattr(track, "keys", ()):
                role = self.package._spans.ROLES.index(track.role)
                content = key if isinstance(key, bytes) else key.encode()
                links.append(LINK.pack(code, start, end, content, role))
            return code

        return (
            [node.key for node in taken.nodes],
            taken.starts,
            taken.ends,
            [type(track).__name__ for track in taken.tracks],
            [(fold.node.key, *fold[1:5]) for fold in taken.folds],
            taken.marks,
            taken.rows.pack(places, known, links, code_of),
            links,
            [(type(track).__name__, *rest) for track, *rest in taken.sent],
        )

    def end(self) -> object:
        """All that can be seen at the end. Leaves nothing open and nothing recording."""
        found = [self.timing.to_dict()["children"], self.spans()]
        self.timing.enabled = True
        for actor in self.actors:
            while actor.open:
                scope = actor.open.pop()
                self.do(actor, partial(scope.__exit__, None, None, None))
        self.log.end()
        self.package.set_range_opener(None)
        found += [self.timing.to_dict()["children"], self.taken, self.spans(), self.ranges]
        found.append([f"{type(fault).__name__}: {fault}" for fault in self.faults])
        return found


@pytest.fixture(scope="module")
def threads() -> Iterator[list[ThreadPoolExecutor]]:
    """Two threads, each of which does one thing when it is told to."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ThreadPoolExecutor(max_workers=1)) for _ in range(2)]


ACTIONS = (
    ["enter"] * 4 + ["leave"] * 3 + ["wait"] * 2
    + ["call", "inside", "inside", "burst", "keep", "copy", "alarm", "reset", "switch", "loop"]
    + ["ranges", "record", "mark", "sent", "take"]
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from(ACTIONS),
            st.integers(0, 4),
            st.integers(0, 9),
            st.sampled_from(["a", "b", "c", Phase.LOAD, ("a", 1)]),
            st.sampled_from(["add_time", "add_time", "add_time", "timeit", "time_avg", "linked"]),
        ),
        min_size=10,
        max_size=50,
    )
)
def test_the_same_program_makes_the_same_tree_and_spans(
    threads: list[ThreadPoolExecutor], steps: list[tuple[str, int, int, Any, str]]
) -> None:
    """Every step has the same result on both, and so have tree, spans and readings of the clock."""
    compiled, python = (Side(package, threads) for package in both())
    assert (True, False) == tuple(package.compiled for package in both())
    try:
        for step in steps:
            assert python.step(*step) == compiled.step(*step)
            assert python.clock.now == compiled.clock.now
    finally:
        ends = python.end(), compiled.end()
    assert ends[0] == ends[1]


@pytest.mark.parametrize("which", [0, 1], ids=["compiled", "python"])
def test_a_scope_can_be_left_with_keywords(which: int) -> None:
    """As code that passes on what it got may do."""
    timing = both()[which].Timing("t")
    with timing.add_time("a") as scope:
        scope.__exit__(kind=None, error=None, trace=None)
        assert 1 == timing.to_dict()["children"][0]["count"]


@pytest.mark.parametrize("which", [0, 1], ids=["compiled", "python"])
def test_a_clock_that_counts_in_floats_ends_no_scope_of_a_ledger(which: int) -> None:
    """The job goes on, whatever the ledger makes of such times."""
    package = both()[which]
    clock = itertools.count(0.5).__next__
    timing, log = package.Timing("t", clock=clock), package._spans.SpanLog(clock)
    log.begin()
    try:
        with timing.add_time("a"):
            pass
    finally:
        log.end()
    assert ["a"] == [node.key for node in log.take().nodes]

"""Programs of processes that run at once, in simulated time. All times are milliseconds.

Each process is a program that reads like what it stands for: a generator that yields how long it
takes, or the moment that it waits for.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Hashable, Sequence

import attrs
import numpy as np

from truth.causes import BETWEEN, START, SUBMIT
from truth.topologies import LOAD, Topology
from truth.world import World

RANK_KINDS = ("slow rank", "two slow ranks", "slow node", "slow everywhere", "pauses", "drift")
MEETING_KINDS = (*RANK_KINDS, "imbalance", "late start", "slow loader", "checkpoint")


class Moment:
    """What programs wait for until it has happened."""

    def __init__(self) -> None:
        self.happened = False
        self.waiting: list[Program] = []


Wanted = float | Moment
Program = Generator[Wanted, None, None]
Work = Callable[["Rank"], Program]


@attrs.frozen
class Call:
    """A call of an actor, which takes the results of those that it needs, and has a key."""

    key: str
    sender: Rank
    to: Rank
    method: str
    work: Work
    needs: tuple[Call, ...] = ()


class Rank:
    """A process: an actor of Ray, a rank of torchrun, or the driver.

    Attributes:
        inside: the spans that are open.
    """

    def __init__(self, cluster: Cluster, group: str, number: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.group = group
        self.number = number
        self.inside: tuple[str, ...] = ()
        self._counts: Counter[Hashable] = Counter()
        self._calls: deque[Call] = deque()
        self._called = Moment()
        self._returned = Moment()

    # Work

    def row(self) -> int:
        """The step whose draws are next, for a process that knows no steps: never the warm-up."""
        return 1 + self.count("row") % (self.world.steps - 1)

    def takes(
        self, scope: str, usual: float, step: int, works: bool = False, share: float = 1.0
    ) -> Program:
        """Let the time of a scope pass, without a span.

        Args:
            usual: as for `World.times`, as is `works`; the step's calls are counted.
            share: how much of the usual work there is.
        """
        call = self.count((scope, step))
        times = self.world.times(self.group, scope, usual, works, call)
        yield share * float(times[step, self.number])

    def does(
        self, scope: str, usual: float, step: int, works: bool = True, share: float = 1.0
    ) -> Program:
        """Do something in a span of its own."""
        yield from self.within(scope, self.takes(scope, usual, step, works, share))

    def itself(self, usual: float, step: int, share: float = 1.0) -> Program:
        """Do a method's work, which has no span but the method's."""
        yield from self.takes(self.inside[-1], usual, step, works=True, share=share)

    def loads(self, step: int) -> Program:
        """Wait for the loader of this process."""
        yield from self.within(LOAD, self.takes(LOAD, 0.5, step), "data")

    def count(self, what: Hashable) -> int:
        """How often it has asked this before."""
        self._counts[what] += 1
        return self._counts[what] - 1

    # Spans

    def within(self, scope: str, program: Program, whom: str | None = None) -> Program:
        """Do something within a span."""
        begin, outer = self.cluster.now, self.inside
        self.inside = (*outer, scope)
        yield from program
        self.inside = outer
        self.seen(scope, begin, whom)

    def seen(
        self,
        scope: str,
        begin: float,
        whom: str | None = None,
        waits: Sequence[str] = (),
        releases: Sequence[str] = (),
        meets: Sequence[str] = (),
    ) -> None:
        """Record a span that ends now."""
        self.world.span(
            self.group, (*self.inside, scope), begin, self.cluster.now, self.number, whom,
            lambda _: waits, lambda _: releases, lambda _: meets,
        )  # fmt: skip

    # Messages

    def tells(self, scope: str, *keys: str, recorded: bool = True) -> Program:
        """Send a message that others wait for by its keys."""
        begin = self.cluster.now
        yield 0.05
        self.seen(scope, begin, releases=keys if recorded else ())
        for key in keys:
            self.cluster.happens(self.cluster.moments[key])

    def hears(self, scope: str, whom: str, *keys: str, recorded: bool = True) -> Program:
        """Wait for messages or results."""
        begin = self.cluster.now
        for key in keys:
            yield self.cluster.moments[key]
        yield 0.06
        self.seen(scope, begin, whom, keys if recorded else ())

    # Calls of Ray

    def sends(
        self, to: Rank, method: str, work: Work, needs: Sequence[Call] = (), submit: float = 0.0
    ) -> Generator[Wanted, None, Call]:
        """Send a call; it takes a while to arrive."""
        begin = self.cluster.now
        yield 0.04 + submit
        name = f"{to.group}.{method}"
        key = f"ray:{name}:{next(self.cluster.numbers)}"
        call = Call(key, self, to, name, work, tuple(needs))
        needed = [each.key for each in needs]
        self.world.sent(self.group, begin, self.cluster.now, key, needed, self.number)
        self.cluster.later(0.3, lambda: to.accepts(call))
        return call

    def fans_out(
        self, to: Sequence[Rank], method: str, work: Work, step: int, needs: Sequence[Call] = ()
    ) -> Generator[Wanted, None, list[Call]]:
        """Send a call to each of several ranks."""
        submit = self.world.times(self.group, SUBMIT, 0, works=False)[step, self.number] / len(to)
        calls: list[Call] = []
        for rank in to:
            calls += [(yield from self.sends(rank, method, work, needs, float(submit)))]
        return calls

    def asks(self, to: Sequence[Rank], method: str, work: Work, step: int) -> Program:
        """Send a call to each of several ranks, and wait for all."""
        yield from self.gets((yield from self.fans_out(to, method, work, step)))

    def gets(self, calls: Sequence[Call]) -> Program:
        """Wait for all of some calls."""
        yield from self.hears("ray.get", "*", *(call.key for call in calls))

    def first(self, calls: list[Call]) -> Generator[Wanted, None, Call]:
        """Wait for any of some calls, and take it from them."""
        begin = self.cluster.now
        while not any(self.cluster.moments[call.key].happened for call in calls):
            yield self._returned
        ended = next(call for call in calls if self.cluster.moments[call.key].happened)
        calls.remove(ended)
        yield 0.05
        self.seen("ray.wait", begin, "*", [ended.key])
        return ended

    def accepts(self, call: Call) -> None:
        """Take a call that has arrived; they are done in this order, one at a time."""
        self._calls.append(call)
        self._called = self.cluster.renewed(self._called)

    def serves(self) -> Program:
        """Do all calls that arrive."""
        while True:
            while not self._calls:
                yield self._called
            call = self._calls.popleft()
            for needed in call.needs:
                yield self.cluster.moments[needed.key]
            begin = self.cluster.now
            self.inside = (call.method,)
            yield from call.work(self)
            yield 0.02
            self.inside = ()
            self.seen(call.method, begin, releases=[call.key])
            self.cluster.happens(self.cluster.moments[call.key])
            call.sender._returned = self.cluster.renewed(call.sender._returned)


class Cluster:
    """All processes of a job, and what they wait for.

    Attributes:
        now: the time.
        moments: by key.
        numbers: for keys.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 20.0
        self.moments: defaultdict[str, Moment] = defaultdict(Moment)
        self.numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._groups = {
            group: [Rank(self, group, number) for number in range(ranks)]
            for group, ranks in world.machine.groups.items()
        }
        for rank in itertools.chain(*self._groups.values()):
            self.start(rank.serves())

    def __getitem__(self, group: str) -> list[Rank]:
        """The ranks of a group."""
        return self._groups[group]

    def later(self, after: float, action: Callable[[], None]) -> None:
        """Let something happen after some time."""
        heapq.heappush(self._due, (self.now + after, next(self._order), action))

    def start(self, program: Program) -> None:
        """Let a program begin, or go on."""
        self.later(0, lambda: self._goes_on(program))

    def _goes_on(self, program: Program) -> None:
        for wanted in program:
            if not isinstance(wanted, Moment):
                self.later(wanted, lambda: self._goes_on(program))
                return
            if not wanted.happened:
                wanted.waiting.append(program)
                return

    def happens(self, moment: Moment) -> None:
        """Let those go on who wait for a moment."""
        moment.happened = True
        for program in moment.waiting:
            self.start(program)
        moment.waiting.clear()

    def renewed(self, moment: Moment) -> Moment:
        """The same; returns the next such moment."""
        self.happens(moment)
        return Moment()

    def steps(self, group: str, one: Callable[[Rank, int], Program]) -> None:
        """Let the ranks of a group do all their steps, which they mark; then the job ends."""
        edges = np.zeros((2, self.world.steps, self.world.size(group)))
        running = set(range(self.world.size(group)))

        def steps(rank: Rank) -> Program:
            for step in range(self.world.steps):
                yield 0.2
                yield from rank.takes(BETWEEN, 0, step)
                edges[0, step, rank.number] = self.now
                yield from rank.takes(START, 0, step)
                yield from one(rank, step)
                edges[1, step, rank.number] = self.now
            running.remove(rank.number)

        for rank in self[group]:
            self.start(steps(rank))
        while running:
            self.now, _, action = heapq.heappop(self._due)
            action()
        for step in range(self.world.steps):
            self.world.step(group, step, edges[0, step], edges[1, step])


class Meeting:
    """A process group of torch: each leaves a collective when the last has come."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self._cluster = ranks[0].cluster
        self._name = next(self._cluster.numbers)
        self._come = 0
        self._over = Moment()

    def unseen(self, after: float) -> Program:
        """Meet in a collective that nothing records."""
        over = self._over
        self._come += 1
        if self._come % len(self._ranks) == 0:
            self._over = Moment()
            self._cluster.later(after, lambda: self._cluster.happens(over))
        yield over

    def meets(self, rank: Rank, scope: str, usual: float, step: int) -> Program:
        """Meet in a collective that is recorded."""
        begin, first = rank.cluster.now, self._ranks[0]
        key = f"dist:{self._name}:{self._come // len(self._ranks)}"
        call = rank.count((scope, step))
        times = rank.world.times(rank.group, scope, usual, works=False, call=call)
        yield from self.unseen(float(times[step, first.number]))
        rank.seen(scope, begin, "barrier", meets=[key])


class Channel:
    """A bounded queue between groups, whose items have keys."""

    def __init__(self, cluster: Cluster, name: str, bound: int) -> None:
        self._cluster = cluster
        self._name = name
        self._bound = bound
        self._put = self._taken = 0
        self._ready: deque[int] = deque()
        self._changed = Moment()

    def put(self, rank: Rank, whom: str) -> Program:
        """Put an item, once there is room."""
        begin, waited = rank.cluster.now, False
        while self._put - self._taken >= self._bound:
            waited = True
            yield self._changed
        number = self._put
        self._put += 1
        yield 0.05
        freed = [f"taken:{self._name}:{number - self._bound}"] if waited else []
        rank.seen("queue.put", begin, whom, freed, [f"item:{self._name}:{number}"])
        self._ready.append(number)
        self._changed = self._cluster.renewed(self._changed)

    def get(self, rank: Rank, whom: str, count: int = 1) -> Program:
        """Take some items, once they are there."""
        begin = rank.cluster.now
        while len(self._ready) < count:
            yield self._changed
        items = [self._ready.popleft() for _ in range(count)]
        yield 0.05
        names = [f"{self._name}:{item}" for item in items]
        rank.seen("queue.get", begin, whom, [f"item:{name}" for name in names],
                  [f"taken:{name}" for name in names])  # fmt: skip
        self._taken += count
        self._changed = self._cluster.renewed(self._changed)


# What many of them do


def doing(scope: str, usual: float, step: int, works: bool = True, share: float = 1.0) -> Work:
    """What a call is to do that is one scope."""
    return lambda rank: rank.does(scope, usual, step, works, share)


def trains(rank: Rank, meeting: Meeting, step: int, share: float = 1.0) -> Program:
    """A step of data parallel training."""
    yield from rank.loads(step)
    yield from rank.does("forward", 8, step, share=share)
    yield from rank.does("backward", 11, step, share=share)
    yield from meeting.meets(rank, "all_reduce", 0.6, step)


# Topologies of them


def part(ranks: int, of: int) -> int:
    """A part of a number of ranks, at least two."""
    return max(2, -(-ranks // of))


topology = functools.partial(Topology, most=64)

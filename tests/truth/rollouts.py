"""Jobs that note their samples: rollouts that call tools, a buffer, a trainer.

All times are milliseconds, and a token takes about `1 / TOKENS` of one.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from truth.causes import normal, uniform
from truth.processes import Cluster, Meeting, Moment, Program, Rank
from truth.topologies import WEIGHTS, Topology
from truth.world import DRIVER, World

TOKENS = 100
"""Tokens in a unit of length."""
LENGTH = "tokens"
"""The place of the samples' lengths, which nobody waits in."""
LOST = "lost"
"""The place of samples that are too old when the trainer gets them."""
_normal = functools.lru_cache(1024)(normal)
_uniform = functools.lru_cache(1024)(uniform)
BYTES = 2**30
"""The size of the weights."""
_SLOTS = 6
_SPREAD = 0.15
_CALLS_A_TOOL = 0.4


class Engine:
    """What a worker has in flight: the more samples, the longer each token takes."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.world = rank.world
        self.decoding = 0
        self.in_flight = 0
        self.done: deque[str] = deque()
        self.changed = Moment()

    def begins(self, name: str, row: int, call: int, length: float, version: int = 0) -> None:
        """Begin a sample."""
        self.in_flight += 1
        self.rank.cluster.start(self._sample(name, row, call, length, version))

    def _sample(self, name: str, row: int, call: int, length: float, version: int) -> Program:
        rank, world = self.rank, self.world
        turns = [length]
        drawn = _uniform(world.machine.seed, f"tool/{call}", world.steps, world.size("Rollout"))
        if drawn[row, rank.number] < _CALLS_A_TOOL:
            turns = [length / 2, length / 2]
        for turn, part in enumerate(turns):
            if turn:
                begin = rank.cluster.now
                took = world.times(rank.group, "tool", 5, works=False, call=call)
                yield float(took[row, rank.number])
                self._noted(name, "tool", begin)
            begin = rank.cluster.now
            yield from self._decodes(part, row)
            self._noted(name, "generate", begin, tokens=round(TOKENS * part), version=version)
        self.in_flight -= 1
        self.done.append(name)
        self.changed = rank.cluster.renewed(self.changed)

    def _decodes(self, length: float, row: int) -> Program:
        speed = self.world.times(self.rank.group, "decode", 1)[row, self.rank.number]
        self.decoding += 1
        yield 0.0  # samples that begin at the same time slow each other from the start
        while length > 0:
            part = min(2.0, length)
            length -= part
            yield part * float(speed) * (0.6 + 0.4 * self.decoding / _SLOTS)
        self.decoding -= 1

    def _noted(self, name: str, phase: str, begin: float, **notes: float) -> None:
        noted(self.rank, name, phase, begin, self.rank.cluster.now, **notes)


def noted(rank: Rank, name: str, phase: str, begin: float, end: float, **notes: float) -> None:
    """Record a phase of a sample."""
    recorder = rank.world.recorder
    if recorder is not None:
        edges = recorder.nanoseconds(begin), recorder.nanoseconds(end)
        recorder.ledgers[rank.group][rank.number].sample(name, phase, *edges, **notes)


def _lengths(world: World, row: int, calls: Sequence[int]) -> NDArray[np.float64]:
    """The lengths of the samples of a step, by call and rank."""
    seed, shape = world.machine.seed, (world.steps, world.size("Rollout"))
    lengths = np.stack([
        world.times("Rollout", LENGTH, 20, works=False, call=call)[row]
        * np.exp(_SPREAD * _normal(seed, f"length/{call}", *shape)[row])
        for call in calls
    ])  # fmt: skip
    without = world.without
    if without is not None and without.to == "capped":
        return lengths.clip(max=without.most)
    return _dealt(lengths) if without is not None and without.to == "dealt" else lengths


def _dealt(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same samples, so dealt that all ranks have nearly as many tokens."""
    calls, ranks = lengths.shape
    hands: list[list[float]] = [[] for _ in range(ranks)]
    for length in sorted(lengths.ravel().tolist(), reverse=True):
        least = min((hand for hand in hands if len(hand) < calls), key=sum)
        least.append(length)
    return np.array(hands).T


def _agent_loop(world: World, _: str) -> None:
    """Each step, rollouts end all their samples; then rewards, training, and weights."""
    cluster = Cluster(world)
    meeting = Meeting(cluster["Trainer"])
    trainers, judges = cluster["Trainer"], cluster["Reward"]

    def one(driver: Rank, step: int) -> Program:
        lengths = _lengths(world, step, range(_SLOTS))
        names = [
            [f"{step}:{rank}:{call}" for call in range(_SLOTS)]
            for rank in range(world.size("Rollout"))
        ]
        every = list(itertools.chain(*names))

        def generates(rank: Rank) -> Program:
            engine = Engine(rank)
            for call, name in enumerate(names[rank.number]):
                engine.begins(name, step, call, float(lengths[call, rank.number]), step)
            while engine.in_flight:
                yield engine.changed

        def scores(rank: Rank) -> Program:
            took = world.times("Reward", "score", 3)[step, rank.number]
            mine = every[rank.number :: len(judges)]
            for name in mine:
                begin = cluster.now
                yield float(took) / len(mine)
                noted(rank, name, "reward", begin, cluster.now)

        def trains(rank: Rank) -> Program:
            begin = cluster.now
            yield from rank.takes("forward_backward", 10, step, works=True)
            yield from meeting.unseen(0.5)
            for name in every[rank.number :: len(trainers)]:
                noted(rank, name, "trained", begin, cluster.now, version=step)

        yield from driver.asks(
            cluster["Rollout"], "generate", lambda rank: rank.within("decode", generates(rank)),
            step,
        )  # fmt: skip
        yield from driver.asks(
            judges, "score", lambda rank: rank.within("score", scores(rank)), step
        )
        yield from driver.does("compute_advantage", 0.5, step, works=False)
        yield from driver.asks(
            trainers, "train", lambda rank: rank.within("forward_backward", trains(rank)), step
        )

        def loads(rank: Rank) -> Program:
            begin = cluster.now
            yield from rank.does(WEIGHTS, 1, step, works=False)
            noted(rank, f"weights:{step}", "sync", begin, cluster.now, bytes=BYTES)

        yield from driver.asks(cluster["Rollout"], "sync", loads, step)

    cluster.steps(DRIVER, one)


def _free_rollouts(world: World, _: str) -> None:
    """Rollouts beside training: a sample begins whenever a slot is free, and none too early.

    The trainer takes a batch from a buffer; what is too old by then is lost.
    """
    cluster = Cluster(world)
    ranks, rows = cluster["Rollout"], world.steps - 1
    batch, ahead = 9 * len(ranks) // 2, 2
    engines = [Engine(rank) for rank in ranks]
    begun, lost, version, put = 0, 0, 0, Moment()
    ready: deque[tuple[str, bool]] = deque()

    def allowed() -> bool:
        return begun - lost < (version + 1 + ahead) * batch

    def produces(rank: Rank) -> Program:
        nonlocal begun, put
        engine, count = engines[rank.number], 0
        too_old: set[str] = set()
        while True:
            begin = cluster.now
            while not engine.done:
                while engine.in_flight < _SLOTS and allowed():
                    call, row = divmod(count, rows)
                    row, name = row + 1, f"{rank.number}:{count}"
                    length = _lengths(world, row, [call])[0, rank.number]
                    flag = world.times(rank.group, LOST, 0, works=False, call=call)
                    if flag[row, rank.number] > 0:
                        too_old.add(name)
                    engine.begins(name, row, call, float(length), version)
                    begun, count = begun + 1, count + 1
                if not engine.in_flight and not engine.done:
                    rank.seen("decode", begin)
                    yield from rank.hears("wait_for_version", "Learner", f"version:{version + 1}")
                    begin = cluster.now
                elif not engine.done:
                    yield engine.changed
            rank.seen("decode", begin)
            name = engine.done.popleft()
            since = cluster.now
            yield 0.05
            rank.seen("queue.put", since, releases=[f"item:{name}"])
            noted(rank, name, "buffered", since, cluster.now)
            ready.append((name, name in too_old))
            put = cluster.renewed(put)

    def one(rank: Rank, step: int) -> Program:
        nonlocal lost, version
        begin = cluster.now
        names: list[str] = []
        while len(names) < batch:
            while not ready:
                yield put
            name, is_lost = ready.popleft()
            if is_lost:
                lost += 1
                for engine in engines:
                    engine.changed = cluster.renewed(engine.changed)
            else:
                names.append(name)
        yield 0.05
        rank.seen("queue.get", begin, "Rollout", [f"item:{name}" for name in names])
        begin = cluster.now
        yield from rank.does("learn", 20, step)
        for name in names:
            noted(rank, name, "trained", begin, cluster.now, version=step)
        version = step + 1
        yield from rank.tells("publish_weights", f"version:{version}")
        for engine in engines:
            engine.changed = cluster.renewed(engine.changed)

    for rank in ranks:
        cluster.start(produces(rank))
    cluster.steps("Learner", one)


ROLLOUTS = {
    "agent loop": Topology(
        _agent_loop,
        lambda ranks: {DRIVER: 1, "Rollout": ranks, "Reward": max(2, ranks // 4),
                       "Trainer": max(2, ranks // 2)}, 45,
        {"Rollout": ("decode",), "Trainer": ("forward_backward",)},
        ("tail", "slow tool", "slow reward", "uneven tokens", "slow rank", "slow sync"),
        mechanisms=("",), most=32,
        sites={"tail": ("Rollout", LENGTH), "uneven tokens": ("Rollout", LENGTH),
               "slow tool": ("Rollout", "tool"), "slow reward": ("Reward", "score"),
               "slow rank": ("Rollout", "decode"), "slow sync": ("Rollout", WEIGHTS)},
    ),
    "free rollouts": Topology(
        _free_rollouts, lambda ranks: {"Rollout": ranks, "Learner": 1}, 22,
        {"Rollout": ("decode",)},
        ("tail", "slow tool", "slow rollouts", "lost samples", "slow learner"),
        mechanisms=("",), most=32,
        sites={"tail": ("Rollout", LENGTH), "slow tool": ("Rollout", "tool"),
               "slow rollouts": ("Rollout", "decode"), "lost samples": ("Rollout", LOST),
               "slow learner": ("Learner", "learn")},
    ),
}  # fmt: skip
"""Jobs whose processes note what they do with each sample."""

"""More jobs, of shapes that `explain` was not tuned for. All times are milliseconds.

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

from truth.causes import BETWEEN, START, SUBMIT, normal, uniform
from truth.topologies import CHECKPOINT, LOAD, WEIGHTS, Topology
from truth.world import DRIVER, World

_RANK_KINDS = ("slow rank", "two slow ranks", "slow node", "slow everywhere", "pauses", "drift")
_MEETING_KINDS = (*_RANK_KINDS, "imbalance", "late start", "slow loader", "checkpoint")


# Processes


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


# Topologies


def _doing(scope: str, usual: float, step: int, works: bool = True, share: float = 1.0) -> Work:
    """What a call is to do that is one scope."""
    return lambda rank: rank.does(scope, usual, step, works, share)


def _rlhf(world: World, _: str) -> None:
    """PPO with four models, as in verl: three of them score what the actor generates.

    Actor and critic are updated side by side; what FSDP reduces in that is not recorded.
    """
    cluster = Cluster(world)
    models = (("Reference", "log_prob", 6), ("Reward", "score", 8), ("Critic", "values", 5))
    meeting = {group: Meeting(cluster[group]) for group in ("Actor", "Critic")}

    def one(driver: Rank, step: int) -> Program:
        def updates(rank: Rank) -> Program:
            yield from rank.takes("update", 14, step, works=True)
            yield from meeting[rank.group].unseen(0.5)

        actors, generates = cluster["Actor"], _doing("generate", 26, step)
        generated = yield from driver.fans_out(actors, "rollout", generates, step)
        scored = []
        for group, scope, usual in models:
            scored += yield from driver.fans_out(
                cluster[group], f"compute_{scope}", _doing(scope, usual, step), step, generated
            )
        yield from driver.gets(scored)
        yield from driver.does("compute_advantage", 1.5, step, works=False)
        updated = []
        for group in meeting:
            updated += yield from driver.fans_out(
                cluster[group], "train", lambda rank: rank.within("update", updates(rank)), step
            )
        yield from driver.gets(updated)
        yield from driver.asks(actors, "sync", _doing(WEIGHTS, 1.5, step, works=False), step)

    cluster.steps(DRIVER, one)


def _stale_rollouts(world: World, _: str) -> None:
    """Asynchronous RL as in AReaL: rollouts go on beside training, with weights not too old.

    None begins before the weights of two steps before the one that is to use it.
    """
    cluster = Cluster(world)
    batch = world.size("Rollout")
    ready = Channel(cluster, "trajectories", 8 * batch)
    meeting = Meeting(cluster["Trainer"])
    begun = itertools.count()

    def rolls_out(rank: Rank) -> Program:
        version = 0
        while True:
            needed = next(begun) // batch - 2
            if needed > version:
                version = needed
                yield from rank.hears("wait_for_version", "Trainer", f"version:{version}")
                yield from rank.does(WEIGHTS, 0.8, version, works=False)
            yield from rank.does("generate", 24, rank.row())
            yield from ready.put(rank, "Trainer")

    def one(rank: Rank, step: int) -> Program:
        if rank.number == 0:
            yield from ready.get(rank, "Rollout", batch)
        yield from meeting.meets(rank, "broadcast", 0.5, step)
        yield from rank.does("forward_backward", 17, step)
        yield from meeting.meets(rank, "all_reduce", 0.6, step)
        if rank.number == 0 and step + 1 < world.steps:
            yield from rank.tells("publish_weights", f"version:{step + 1}")

    for rank in cluster["Rollout"]:
        cluster.start(rolls_out(rank))
    cluster.steps("Trainer", one)


def _impala(world: World, _: str) -> None:
    """IMPALA as in RLlib: the driver passes fragments, as they come, to aggregators.

    The learner takes their batches; one of its updates may be under way.
    """
    cluster = Cluster(world)
    aggregators, fragments = cluster["Aggregator"], world.size("EnvRunner")
    sampling: list[Call] = []
    learning: deque[Call] = deque()

    def samples(rank: Rank) -> Program:
        yield from rank.itself(17, rank.row())

    def one(driver: Rank, step: int) -> Program:
        def adds(rank: Rank) -> Program:
            yield from rank.itself(4 * len(aggregators) / fragments, step)

        def updates(rank: Rank) -> Program:
            yield from rank.itself(12, step)

        if not sampling:
            sampling.extend(
                (yield from driver.fans_out(2 * cluster["EnvRunner"], "sample", samples, step))
            )
        added: list[Call] = []
        for number in range(fragments):
            fragment = yield from driver.first(sampling)
            sampling.append((yield from driver.sends(fragment.to, "sample", samples)))
            aggregator = aggregators[number % len(aggregators)]
            added.append((yield from driver.sends(aggregator, "add", adds, [fragment])))
        learning.extend(
            (yield from driver.fans_out(cluster["Learner"], "update", updates, step, added))
        )
        if len(learning) > 1:
            yield from driver.gets([learning.popleft()])
        yield from driver.does("collect_metrics", 0.3, step, works=False)

    cluster.steps(DRIVER, one)


def _replay_shards(world: World, _: str) -> None:
    """Ape-X: the learner asks each shard of the replay buffer for a part of its next batch.

    Actors add more experience than is needed.
    """
    cluster = Cluster(world)
    shards = cluster["Replay"]
    asked: deque[list[Call]] = deque()

    def inserts(replay: Rank) -> Program:
        yield from replay.does("insert", 0.4, replay.row())

    def acts(rank: Rank) -> Program:
        adding: deque[Call] = deque()
        for count in itertools.count(rank.number):
            yield from rank.does("env.step", 15, rank.row())
            adding.append((yield from rank.sends(shards[count % len(shards)], "add", inserts)))
            if len(adding) > 2:
                yield from rank.gets([adding.popleft()])

    def one(rank: Rank, step: int) -> Program:
        for _ in range(2 if step == 0 else 1):
            sample = _doing("sample", 11, step)
            asked.append((yield from rank.fans_out(shards, "sample", sample, step)))
        yield from rank.gets(asked.popleft())
        yield from rank.does("learn", 14, step)

    for rank in cluster["Actor"]:
        cluster.start(acts(rank))
    cluster.steps("Learner", one)


def _population(world: World, _: str) -> None:
    """Population based training: trials train thrice, resumed as the driver gets their results.

    Then the worst quarter goes on from the best one's weights.
    """
    cluster = Cluster(world)
    trials = cluster["Trial"]
    scores = uniform(world.machine.seed, "scores", world.steps, len(trials))

    def one(driver: Rank, step: int) -> Program:
        def train(rank: Rank) -> Program:
            yield from rank.itself(10, step)

        left = Counter(2 * [rank.number for rank in trials])
        training = yield from driver.fans_out(trials, "train", train, step)
        while training:
            ended = yield from driver.first(training)
            if left[ended.to.number]:
                left[ended.to.number] -= 1
                training.append((yield from driver.sends(ended.to, "train", train)))
        yield from driver.does("exploit_and_explore", 0.5, step, works=False)
        order = [trials[number] for number in np.argsort(scores[step])]
        save, restore = _doing(CHECKPOINT, 2, step, False), _doing(WEIGHTS, 1, step, False)
        restored: list[Call] = []
        for worst, best in zip(order[: max(1, len(order) // 4)], reversed(order), strict=False):
            saved = yield from driver.sends(best, "save", save)
            restored.append((yield from driver.sends(worst, "restore", restore, [saved])))
        yield from driver.gets(restored)

    cluster.steps(DRIVER, one)


def _uneven_pipeline(world: World, _: str) -> None:
    """Megatron's schedule of one forward, one backward, whose sends wait for nobody.

    The first stage embeds tokens as well; the last one has the head and the loss.
    """
    cluster = Cluster(world)
    stages = world.size("Rank")
    everybody = Meeting(cluster["Rank"])
    tied = Meeting([cluster["Rank"][0], cluster["Rank"][-1]])

    def one(rank: Rank, step: int) -> Program:
        stage, done = rank.number, Counter[str]()
        ahead = stages - 1 - stage
        alternating = ["forward", "backward"] * (stages + 2 - ahead)
        for scope in ["forward"] * ahead + alternating + ["backward"] * ahead:
            message = f"{scope}:{step}:{done[scope]}"
            done[scope] += 1
            before, after = (stage - 1, stage + 1)[:: 1 if scope == "forward" else -1]
            if 0 <= before < stages:
                yield from rank.hears(f"recv_{scope}", "Rank", f"{message}:{stage}")
            elif scope == "forward":
                yield from rank.does("embed", 0.8, step)
            yield from rank.does(scope, 3 if scope == "forward" else 5, step)
            if 0 <= after < stages:
                yield from rank.tells(f"isend_{scope}", f"{message}:{after}")
            elif scope == "forward":
                yield from rank.does("head_and_loss", 1.5, step)
        if stage in (0, stages - 1):
            yield from tied.meets(rank, "reduce_embeddings", 0.5, step)
        yield from everybody.meets(rank, "reduce_grad_norm", 0.2, step)
        yield from rank.does("optimizer", 1.5, step)

    cluster.steps("Rank", one)


def _experts(world: World, _: str) -> None:
    """A mixture of experts: in each layer, four ranks exchange tokens before and after them.

    Some experts get more tokens than others, which differ from step to step.
    """
    cluster = Cluster(world)
    ranks, layers = cluster["Rank"], 3
    meetings = [Meeting(ranks[begin : begin + 4]) for begin in range(0, len(ranks), 4)]
    everybody = Meeting(ranks)
    tokens = [
        np.exp(0.15 * normal(world.machine.seed, f"routing/{layer}", world.steps, len(ranks)))
        for layer in range(layers)
    ]

    def one(rank: Rank, step: int) -> Program:
        meeting = meetings[rank.number // 4]
        yield from rank.loads(step)
        for routed in tokens:
            yield from rank.does("attention", 2.5, step)
            yield from meeting.meets(rank, "all_to_all", 0.4, step)
            yield from rank.does("experts", 3, step, share=float(routed[step, rank.number]))
            yield from meeting.meets(rank, "all_to_all", 0.4, step)
        yield from rank.does("backward", 14, step)
        yield from everybody.meets(rank, "all_reduce", 0.8, step)
        yield from rank.does("optimizer", 0.8, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    cluster.steps("Rank", one)


def _router(world: World, _: str) -> None:
    """A router before engines as of vLLM: each has two requests, the next goes to who answers.

    Responses are of very different lengths.
    """
    cluster = Cluster(world)
    engines, requests = cluster["Engine"], 4 * world.size("Engine")
    lengths = np.exp(0.4 * normal(world.machine.seed, "lengths", world.steps, requests))

    def one(driver: Rank, step: int) -> Program:
        def routes(router: Rank) -> Program:
            decoding: list[Call] = []
            for number, length in enumerate(lengths[step].tolist()):
                if number < 2 * len(engines):
                    engine = engines[number % len(engines)]
                else:
                    engine = (yield from router.first(decoding)).to
                yield from router.does("route", 6 / requests, step)
                decodes = _doing("decode", 8, step, share=length)
                decoding.append((yield from router.sends(engine, "generate", decodes)))
            yield from router.gets(decoding)

        yield from driver.asks(cluster["Router"], "generate", routes, step)
        yield from driver.does("score_responses", 2, step, works=False)

    cluster.steps(DRIVER, one)


def _streaming_data(world: World, _: str) -> None:
    """Ray Data streams into Ray Train: a pool of actors maps blocks, into a bounded queue.

    A block goes to whichever training rank asks first.
    """
    cluster = Cluster(world)
    blocks = Channel(cluster, "blocks", 2 * world.size("Mapper"))
    meeting = Meeting(cluster["Trainer"])

    def maps(rank: Rank) -> Program:
        while True:
            yield from rank.does("map_batches", 23, rank.row())
            yield from blocks.put(rank, "Trainer")

    def gets_two(rank: Rank) -> Program:
        for _ in range(2):
            yield from blocks.get(rank, "Mapper")

    def one(rank: Rank, step: int) -> Program:
        yield from rank.within(LOAD, gets_two(rank), "data")
        yield from rank.does("forward", 7, step)
        yield from rank.does("backward", 10, step)
        yield from meeting.meets(rank, "all_reduce", 0.6, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    for rank in cluster["Mapper"]:
        cluster.start(maps(rank))
    cluster.steps("Trainer", one)


def _federated(world: World, _: str) -> None:
    """Federated rounds as of Flower: half of the clients, drawn anew each time, train.

    Some have much more data than others. The server aggregates one result after the other.
    """
    cluster = Cluster(world)
    clients = cluster["Client"]
    volumes = np.exp(0.3 * normal(world.machine.seed, "volumes", 1, len(clients)))[0]
    lots = uniform(world.machine.seed, "lots", world.steps, len(clients))

    def one(driver: Rank, step: int) -> Program:
        def fits(rank: Rank) -> Program:
            yield from rank.itself(25, step, share=float(volumes[rank.number]))

        chosen = np.argsort(lots[step])[: -(-len(clients) // 2)]
        yield from driver.asks([clients[number] for number in chosen], "fit", fits, step)
        yield from driver.does("aggregate", 1 + 0.05 * len(chosen), step, works=False)

    cluster.steps(DRIVER, one)


def _hierarchy(world: World, _: str) -> None:
    """Gradients are reduced within each node, between the nodes' first ranks, and handed down."""
    cluster = Cluster(world)
    ranks, size = cluster["Rank"], world.machine.per_node
    nodes = [ranks[begin : begin + size] for begin in range(0, len(ranks), size)]
    within = [Meeting(node) for node in nodes]
    leaders = Meeting([node[0] for node in nodes])

    def one(rank: Rank, step: int) -> Program:
        node, local = divmod(rank.number, size)
        yield from rank.loads(step)
        yield from rank.does("forward", 7, step)
        yield from rank.does("backward", 12, step)
        yield from within[node].meets(rank, "reduce", 0.4, step)
        if local == 0 and len(nodes) > 1:
            yield from leaders.meets(rank, "all_reduce_nodes", 2, step)
        yield from within[node].meets(rank, "broadcast", 0.4, step)
        yield from rank.does("optimizer", 0.6, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    cluster.steps("Rank", one)


def _trains(rank: Rank, meeting: Meeting, step: int, share: float = 1.0) -> Program:
    """A step of data parallel training."""
    yield from rank.loads(step)
    yield from rank.does("forward", 8, step, share=share)
    yield from rank.does("backward", 11, step, share=share)
    yield from meeting.meets(rank, "all_reduce", 0.6, step)


def _evaluation(world: World, _: str) -> None:
    """Evaluation beside training: every fourth step, evaluators are given a snapshot.

    The driver waits for their results only before it gives them the next one.
    """
    cluster = Cluster(world)
    trainers = cluster["Trainer"]
    meeting = Meeting(trainers)
    evaluating: list[Call] = []

    def one(driver: Rank, step: int) -> Program:
        yield from driver.asks(
            trainers, "train_step", lambda rank: _trains(rank, meeting, step), step
        )
        if step % 4 == 3:
            if evaluating:
                yield from driver.gets(evaluating)
            copies, predicts = _doing("copy_state", 1, step), _doing("predict", 50, step)
            snapshot = yield from driver.fans_out(trainers[:1], "snapshot", copies, step)
            evaluating[:] = yield from driver.fans_out(
                cluster["Evaluator"], "evaluate", predicts, step, snapshot
            )
        yield from driver.does("log_metrics", 0.3, step, works=False)

    cluster.steps(DRIVER, one)


def _checkpoint_writers(world: World, _: str) -> None:
    """Asynchronous checkpoints: an actor for four ranks uploads what they copy every fifth step.

    No rank copies again before its last upload has ended.
    """
    cluster = Cluster(world)
    meeting = Meeting(cluster["Trainer"])
    uploading: dict[int, Call] = {}

    def one(rank: Rank, step: int) -> Program:
        yield from _trains(rank, meeting, step)
        yield from rank.does("optimizer", 0.6, step)
        if step % 5 == 2:
            if rank.number in uploading:
                yield from rank.gets([uploading[rank.number]])
            yield from rank.does("copy_state", 3, step)
            writer = cluster["Writer"][rank.number // 4]
            uploads = _doing("upload", 16, step)
            uploading[rank.number] = yield from rank.sends(writer, "write", uploads)

    cluster.steps("Trainer", one)


def _curriculum(world: World, _: str) -> None:
    """A curriculum server: workers ask it for tasks until all of this round are given out.

    Hard tasks take much longer.
    """
    cluster = Cluster(world)
    server, tasks = cluster["Curriculum"][0], 3 * world.size("Worker")
    difficulty = np.exp(0.3 * normal(world.machine.seed, "difficulty", world.steps, tasks))

    def one(driver: Rank, step: int) -> Program:
        left = deque(difficulty[step].tolist())
        given: dict[int, float] = {}

        def works(rank: Rank) -> Program:
            def gives(server: Rank) -> Program:
                yield from server.does("choose_task", 4 / tasks, step)
                given[rank.number] = left.popleft() if left else 0.0

            while True:
                yield from rank.asks([server], "next_task", gives, step)
                if not given[rank.number]:
                    return
                yield from rank.does("episode", 9, step, share=given[rank.number])

        yield from driver.asks(cluster["Worker"], "run_tasks", works, step)
        yield from driver.does("update_policy", 4, step, works=False)

    cluster.steps(DRIVER, one)


def _many_agents(world: World, _: str) -> None:
    """Several agents in a slow simulator: each turn asks every agent's policy for an action.

    A policy is an actor that answers all simulators, one at a time.
    """
    cluster = Cluster(world)
    policies, simulators = cluster["Policy"], cluster["Simulator"]

    def one(driver: Rank, step: int) -> Program:
        def plays(rank: Rank) -> Program:
            acts = _doing("act", 2 / len(simulators), step)
            for _ in range(4):
                yield from rank.asks(policies, "act", acts, step)
                yield from rank.does("simulate", 6, step)

        yield from driver.asks(simulators, "play", plays, step)
        yield from driver.asks(policies, "learn", _doing("update", 6, step), step)

    cluster.steps(DRIVER, one)


def _speculative(world: World, _: str) -> None:
    """Speculative decoding: of what a draft model proposes, its target model accepts a part.

    The two talk over a socket, which nothing records, until their response is long enough.
    """
    cluster = Cluster(world)
    size = world.size("Draft")
    accepted = [
        1 + (5 * uniform(world.machine.seed, f"accepted/{turn}", world.steps, size)).astype(int)
        for turn in range(24)
    ]

    def one(driver: Rank, step: int) -> Program:
        def turns(rank: Rank) -> list[str]:
            lengths = np.cumsum([each[step, rank.number] for each in accepted])
            enough = int(np.searchsorted(lengths, 24)) + 1
            return [f"{rank.number}:{step}:{turn}" for turn in range(enough)]

        def drafts(rank: Rank) -> Program:
            for turn in turns(rank):
                yield from rank.does("propose", 2, step)
                yield from rank.tells("send_draft", f"draft:{turn}", recorded=False)
                yield from rank.hears("recv_accepted", "Target", f"kept:{turn}", recorded=False)

        def verifies(rank: Rank) -> Program:
            for turn in turns(rank):
                yield from rank.hears("recv_draft", "Draft", f"draft:{turn}", recorded=False)
                yield from rank.does("verify", 3, step)
                yield from rank.tells("send_accepted", f"kept:{turn}", recorded=False)

        decoding = yield from driver.fans_out(cluster["Draft"], "decode", drafts, step)
        decoding += yield from driver.fans_out(cluster["Target"], "decode", verifies, step)
        yield from driver.gets(decoding)
        yield from driver.does("score_responses", 1, step, works=False)

    cluster.steps(DRIVER, one)


def _controllers(world: World, _: str) -> None:
    """A tree of controllers: each calls the workers below it, and merges their results."""
    cluster = Cluster(world)
    controllers, workers = cluster["Controller"], cluster["Worker"]

    def one(driver: Rank, step: int) -> Program:
        def controls(rank: Rank) -> Program:
            below = workers[rank.number :: len(controllers)]
            yield from rank.asks(below, "rollout", lambda worker: worker.itself(18, step), step)
            yield from rank.does("merge", 3, step)

        yield from driver.asks(controllers, "run", controls, step)
        yield from driver.does("plan", 1, step, works=False)

    cluster.steps(DRIVER, one)


def _elastic(world: World, _: str) -> None:
    """Elastic training: every four steps other workers are away, and the rest share their work.

    Whenever the members change, they meet to copy the state.
    """
    cluster = Cluster(world)
    workers = cluster["Worker"]
    away = uniform(world.machine.seed, "away", world.steps // 4 + 1, len(workers)) < 0.15
    here: list[Rank] = []
    meeting = Meeting(workers)

    def one(driver: Rank, step: int) -> Program:
        nonlocal here, meeting
        members = [rank for rank in workers if not away[step // 4, rank.number]]
        if 2 * len(members) <= len(workers):
            members = workers
        share = len(workers) / len(members)

        def copies(rank: Rank) -> Program:
            yield from meeting.meets(rank, "broadcast_state", 5, step)

        if members != here:
            here, meeting = members, Meeting(members)
            yield from driver.asks(here, "reconfigure", copies, step)
        yield from driver.asks(
            here, "train_step", lambda rank: _trains(rank, meeting, step, share), step
        )
        yield from driver.does("log_metrics", 0.3, step, works=False)

    cluster.steps(DRIVER, one)


def _shared_replay(world: World, _: str) -> None:
    """Two trainers share a replay buffer: each half of the ranks reduces among itself.

    Each rank asks for its next batch while it learns; collectors fill the buffer.
    """
    cluster = Cluster(world)
    trainers, replay = cluster["Trainer"], cluster["Replay"][0]
    half = len(trainers) // 2
    halves = [Meeting(trainers[:half]), Meeting(trainers[half:])]
    asked: defaultdict[int, deque[Call]] = defaultdict(deque)

    def inserts(replay: Rank) -> Program:
        yield from replay.does("insert", 2 / len(trainers), replay.row())

    def collects(rank: Rank) -> Program:
        while True:
            yield from rank.does("env.step", 20, rank.row())
            yield from rank.gets([(yield from rank.sends(replay, "add", inserts))])

    def one(rank: Rank, step: int) -> Program:
        sample = _doing("sample", 8 / len(trainers), step)
        for _ in range(2 if step == 0 else 1):
            asked[rank.number].append((yield from rank.sends(replay, "sample", sample)))
        yield from rank.within(LOAD, rank.gets([asked[rank.number].popleft()]), "data")
        yield from rank.does("forward", 7, step)
        yield from rank.does("backward", 11, step)
        yield from halves[rank.number // half].meets(rank, "all_reduce", 0.6, step)
        yield from rank.does("optimizer", 0.6, step)

    for rank in cluster["Collector"]:
        cluster.start(collects(rank))
    cluster.steps("Trainer", one)


def _restarts(world: World, _: str) -> None:
    """Long steps, in a few of which a rank fails, which the others notice in their collective.

    All then restore the last state, and do the step again.
    """
    cluster = Cluster(world)
    meeting = Meeting(cluster["Rank"])
    drawn = uniform(world.machine.seed, "fails", world.steps, world.size("Rank"))

    def one(rank: Rank, step: int) -> Program:
        if step and drawn[step, 0] < 0.05:
            yield from rank.loads(step)
            yield from rank.does("forward", 500, step)
            begin = rank.cluster.now
            yield from meeting.unseen(400)
            if rank.number != drawn[step].argmax():
                rank.seen("all_reduce", begin, "barrier")
            yield from rank.does("restore", 900, step, works=False)
        yield from rank.loads(step)
        yield from rank.does("forward", 500, step)
        yield from rank.does("backward", 900, step)
        yield from meeting.meets(rank, "all_reduce", 60, step)
        yield from rank.does("optimizer", 40, step)

    cluster.steps("Rank", one)


def _part(ranks: int, of: int) -> int:
    """A part of a number of ranks, at least two."""
    return max(2, -(-ranks // of))


_topology = functools.partial(Topology, most=64)
FRESH = {
    "rlhf": _topology(
        _rlhf, lambda ranks: {DRIVER: 1, "Actor": ranks, "Critic": _part(ranks, 2),
                              "Reference": _part(ranks, 2), "Reward": _part(ranks, 4)}, 55,
        {"Actor": ("generate", "update"), "Critic": ("values",), "Reference": ("log_prob",),
         "Reward": ("score",)},
        (*_RANK_KINDS, "imbalance", "serial driver", "between steps", "slow sync"),
        hidden=("update",),
        sites={"serial driver": (DRIVER, "compute_advantage"), "slow sync": ("Actor", WEIGHTS)},
    ),
    "stale rollouts": _topology(
        _stale_rollouts, lambda ranks: {"Rollout": ranks, "Trainer": _part(ranks, 2)}, 25,
        {"Rollout": ("generate",), "Trainer": ("forward_backward",)}, (*_RANK_KINDS, "slow sync"),
    ),
    "impala": _topology(
        _impala, lambda ranks: {DRIVER: 1, "EnvRunner": ranks, "Aggregator": _part(ranks, 8),
                                "Learner": 1}, 18,
        {"EnvRunner": ("EnvRunner.sample",), "Aggregator": ("Aggregator.add",)},
        (*_RANK_KINDS, "slow server", "serial driver", "between steps"),
        sites={"slow server": ("Learner", "Learner.update"),
               "serial driver": (DRIVER, "collect_metrics")},
    ),
    "replay shards": _topology(
        _replay_shards, lambda ranks: {"Replay": ranks, "Actor": ranks, "Learner": 1}, 15,
        {"Replay": ("sample",), "Actor": ("env.step",)}, (*_RANK_KINDS, "slow server"),
    ),
    "population": _topology(
        _population, lambda ranks: {DRIVER: 1, "Trial": ranks}, 38,
        {"Trial": ("Trial.train",)}, (*_RANK_KINDS, "serial driver", "slow sync"),
        sites={"serial driver": (DRIVER, "exploit_and_explore"), "slow sync": ("Trial", WEIGHTS)},
    ),
    "uneven pipeline": _topology(
        _uneven_pipeline, lambda ranks: {"Rank": max(3, min(ranks, 16))}, 160,
        {"Rank": ("forward", "backward")}, ("slow rank", "pauses", "drift", "between steps"),
    ),
    "experts": _topology(
        _experts, lambda ranks: {"Rank": 4 * max(1, ranks // 4)}, 38,
        {"Rank": ("experts", "attention", "backward")}, (*_MEETING_KINDS, "slow sync"),
        sites={"slow sync": ("Rank", "all_to_all")},
    ),
    "router": _topology(
        _router, lambda ranks: {DRIVER: 1, "Router": 1, "Engine": ranks}, 47,
        {"Engine": ("decode",)}, (*_RANK_KINDS, "slow server", "serial driver"),
        sites={"slow server": ("Router", "route"), "serial driver": (DRIVER, "score_responses")},
    ),
    "streaming data": _topology(
        _streaming_data, lambda ranks: {"Mapper": ranks, "Trainer": _part(ranks, 2)}, 22,
        {"Mapper": ("map_batches",), "Trainer": ("forward", "backward")},
        (*_RANK_KINDS, "checkpoint"), sites={"checkpoint": ("Trainer", CHECKPOINT)}, feeds="Mapper",
    ),
    "federated": _topology(
        _federated, lambda ranks: {DRIVER: 1, "Client": max(3, ranks)}, 38,
        {"Client": ("Client.fit",)}, (*_RANK_KINDS, "serial driver", "slow submission"),
        hidden=("Client.fit",),  # no ledger tells how much data a client has
        sites={"serial driver": (DRIVER, "aggregate")},
    ),
    "hierarchy": _topology(
        _hierarchy, lambda ranks: {"Rank": ranks}, 24, {"Rank": ("backward", "forward")},
        (*_MEETING_KINDS, "slow sync"), sites={"slow sync": ("Rank", "all_reduce_nodes")},
    ),
    "evaluation": _topology(
        _evaluation, lambda ranks: {DRIVER: 1, "Trainer": ranks, "Evaluator": _part(ranks, 4)}, 22,
        {"Trainer": ("backward",), "Evaluator": ("predict",)},
        (*_RANK_KINDS, "slow loader", "serial driver"),
        sites={"serial driver": (DRIVER, "log_metrics")},
    ),
    "checkpoint writers": _topology(
        _checkpoint_writers, lambda ranks: {"Trainer": ranks, "Writer": -(-ranks // 4)}, 22,
        {"Trainer": ("forward", "backward")},
        (*_RANK_KINDS, "imbalance", "late start", "slow loader", "slow server"),
        sites={"slow server": ("Writer", "upload")},
    ),
    "curriculum": _topology(
        _curriculum, lambda ranks: {DRIVER: 1, "Curriculum": 1, "Worker": ranks}, 43,
        {"Worker": ("episode",)}, (*_RANK_KINDS, "slow server", "serial driver"),
        sites={"slow server": ("Curriculum", "choose_task"),
               "serial driver": (DRIVER, "update_policy")},
    ),
    "many agents": _topology(
        _many_agents, lambda ranks: {DRIVER: 1, "Simulator": ranks, "Policy": min(4, ranks)}, 38,
        {"Simulator": ("simulate",), "Policy": ("act", "update")}, (*_RANK_KINDS, "imbalance"),
    ),
    "speculative": _topology(
        _speculative, lambda ranks: {DRIVER: 1, "Draft": ranks, "Target": ranks}, 58,
        {"Draft": ("propose",), "Target": ("verify",)}, (*_RANK_KINDS, "serial driver"),
        lacks="messages over sockets", sites={"serial driver": (DRIVER, "score_responses")},
    ),
    "controllers": _topology(
        _controllers, lambda ranks: {DRIVER: 1, "Controller": _part(ranks, 4), "Worker": ranks}, 25,
        {"Worker": ("Worker.rollout",), "Controller": ("merge",)},
        (*_RANK_KINDS, "serial driver", "between steps"), sites={"serial driver": (DRIVER, "plan")},
    ),
    "elastic": _topology(
        _elastic, lambda ranks: {DRIVER: 1, "Worker": ranks}, 28,
        {"Worker": ("backward", "forward")},
        (*_RANK_KINDS, "imbalance", "slow loader", "slow submission"),
    ),
    "shared replay": _topology(
        _shared_replay, lambda ranks: {"Trainer": max(4, 2 * (ranks // 2)),
                                       "Collector": _part(ranks, 2), "Replay": 1}, 21,
        {"Trainer": ("backward", "forward"), "Collector": ("env.step",)},
        (*_RANK_KINDS, "slow server"), sites={"slow server": ("Replay", "sample")},
    ),
    "restarts": _topology(
        _restarts, lambda ranks: {"Rank": ranks}, 1550, {"Rank": ("backward", "forward")}, (),
    ),
}  # fmt: skip

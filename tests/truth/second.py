"""Twenty more kinds, written by somebody else and later. All times are milliseconds."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence

import numpy as np

from truth.causes import BETWEEN, UNEVEN, normal, uniform
from truth.processes import (
    MEETING_KINDS,
    RANK_KINDS,
    Call,
    Channel,
    Cluster,
    Meeting,
    Moment,
    Program,
    Rank,
    doing,
    part,
    topology,
    trains,
)
from truth.topologies import CHECKPOINT, LOAD, LOG, WEIGHTS
from truth.world import DRIVER, World

_UNBOUNDED = 10**9


class Posted:
    """What torch does without waiting: a call posts it, and ``torch.wait`` waits until all have.

    The call is work that releases the key for which ``torch.wait`` waits.
    """

    def __init__(self, cluster: Cluster, members: int, after: float) -> None:
        self._cluster = cluster
        self._members = members
        self._after = after
        self._begun: Counter[str] = Counter()

    def begins(self, rank: Rank, scope: str, *keys: str) -> Program:
        """Post it; the data have arrived some time after the last of its members has."""
        begin = self._cluster.now
        yield 0.03
        rank.seen(scope, begin, releases=keys)
        for key in keys:
            self._begun[key] += 1
            if self._begun[key] == self._members:
                self._cluster.later(self._after, lambda key=key: self._arrives(key))

    def _arrives(self, key: str) -> None:
        self._cluster.happens(self._cluster.moments[key])


def _grouped(world: World, group: str, name: str, members: Sequence[Sequence[Rank]]) -> None:
    """Let the ledgers have process groups, as in two of three jobs."""
    if world.machine.seed % 3:
        for ranks in members:
            world.grouped(group, name, [rank.number for rank in ranks])


def _varied(world: World, name: str, spread: float, many: int) -> list[list[float]]:
    """How much work there is, by step and item: some have more, and others the next time."""
    drawn: list[list[float]] = np.exp(
        spread * normal(world.machine.seed, name, world.steps, many)
    ).tolist()
    return drawn


def _hides(rank: Rank, meeting: Meeting, scope: str, usual: float, step: int) -> Program:
    """Work in a scope at whose end ranks meet, which nothing records."""

    def inside() -> Program:
        yield from rank.takes(scope, usual, step, works=True)
        yield from meeting.unseen(0.5)

    yield from rank.within(scope, inside())


# Generation, and training after it


def _prefill_decode(world: World, _: str) -> None:
    """Disaggregated generation: prompts are prefilled on some actors and decoded on others.

    A decoder takes a prompt's cache by reference; responses are of different lengths.
    """
    cluster = Cluster(world)
    prefills, decoders, trainers = cluster["Prefill"], cluster["Decode"], cluster["Trainer"]
    meeting = Meeting(trainers)
    prompts = 2 * len(decoders)
    lengths = _varied(world, "lengths", 0.3, prompts)

    def one(driver: Rank, step: int) -> Program:
        prefill = doing("prefill", 14 * len(prefills) / prompts, step)
        decoding: list[Call] = []
        for number, length in enumerate(lengths[step]):
            to = prefills[number % len(prefills)]
            cache = yield from driver.sends(to, "prefill", prefill)
            to, decode = decoders[number % len(decoders)], doing("decode", 9, step, share=length)
            decoding.append((yield from driver.sends(to, "decode", decode, [cache])))
        yield from driver.gets(decoding)
        yield from driver.does("compute_rewards", 1, step, works=False)
        yield from driver.asks(trainers, "train", lambda rank: trains(rank, meeting, step), step)

    cluster.steps(DRIVER, one)


def _weight_collective(world: World, _: str) -> None:
    """Generation is a step ahead; engines and the first policy rank meet to broadcast weights.

    An engine joins the broadcast only once it has generated, and the policy's rank waits in it.
    """
    cluster = Cluster(world)
    engines, policies = cluster["Engine"], cluster["Policy"]
    meeting, broadcast = Meeting(policies), Meeting([*policies[:1], *engines])
    lasts = world.times("Policy", "torch.broadcast", 2, works=False)[:, 0]
    generating: list[Call] = []

    def one(driver: Rank, step: int) -> Program:
        def broadcasts(rank: Rank) -> Program:
            begin = cluster.now
            yield from broadcast.unseen(float(lasts[step]))
            rank.seen("torch.broadcast", begin, "barrier", meets=[f"weights:{step}"])

        generates = doing("generate", 24, step)
        if not generating:
            generating.extend((yield from driver.fans_out(engines, "generate", generates, step)))
        yield from driver.gets(generating)
        generating[:] = yield from driver.fans_out(engines, "generate", generates, step)
        yield from driver.does("compute_advantage", 1, step, works=False)
        yield from driver.asks(policies, "train", lambda rank: trains(rank, meeting, step), step)
        updating = yield from driver.fans_out(engines, "update_weights", broadcasts, step)
        updating += yield from driver.fans_out(policies[:1], "send_weights", broadcasts, step)
        yield from driver.gets(updating)

    cluster.steps(DRIVER, one)


def _tree_broadcast(world: World, _: str) -> None:
    """Weights go down a binary tree of engines, each of which hands them on before it generates.

    Each trainer takes the rollouts of its own engines.
    """
    cluster = Cluster(world)
    engines, trainers = cluster["Engine"], cluster["Trainer"]
    meeting = Meeting(trainers)

    def generates(rank: Rank) -> Program:
        own = rank.number
        below = [child for child in (2 * own + 1, 2 * own + 2) if child < len(engines)]
        for step in itertools.count():
            above = "Engine" if own else "Trainer"
            yield from rank.hears("recv_weights", above, f"weights:{step}:{own}")
            yield from rank.does(WEIGHTS, 1.5, step, works=False)
            if below:
                yield from rank.tells("send_weights", *(f"weights:{step}:{to}" for to in below))
            yield from rank.does("generate", 17, step)
            yield from rank.tells("send_rollouts", f"rollouts:{step}:{own}")

    def one(rank: Rank, step: int) -> Program:
        if rank.number == 0:
            yield from rank.tells("send_weights", f"weights:{step}:0")
        mine = engines[rank.number :: len(trainers)]
        yield from rank.hears("recv_rollouts", "Engine",
                              *(f"rollouts:{step}:{engine.number}" for engine in mine))  # fmt: skip
        yield from rank.does("forward_backward", 10, step)
        yield from meeting.meets(rank, "torch.all_reduce", 0.5, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    for rank in engines:
        cluster.start(generates(rank))
    cluster.steps("Trainer", one)


def _partial_rollouts(world: World, _: str) -> None:
    """Generation ends once there are enough responses; what is unfinished goes on the next time.

    Each engine decodes four responses at once, a chunk of tokens at a time.
    """
    cluster = Cluster(world)
    engines, trainers = cluster["Engine"], cluster["Trainer"]
    meeting, responses = Meeting(trainers), Channel(cluster, "responses", _UNBOUNDED)
    chunks = 1 + (9 * uniform(world.machine.seed, "chunks", 500, len(engines)) ** 2).astype(int)
    ever = [(chunks[index % 500] for index in itertools.count()) for _ in engines]
    running: list[list[int]] = [[] for _ in engines]
    enough: set[int] = set()

    def one(driver: Rank, step: int) -> Program:
        def generates(rank: Rank) -> Program:
            mine = running[rank.number]
            while step not in enough:
                while len(mine) < 4:
                    mine.append(int(next(ever[rank.number])[rank.number]))
                yield from rank.does("decode_chunk", 3, step)
                mine[:] = [left - 1 for left in mine]
                while 0 in mine:
                    mine.remove(0)
                    yield from responses.put(rank, None)  # type: ignore[arg-type]

        generating = yield from driver.fans_out(engines, "generate", generates, step)
        yield from responses.get(driver, "Engine", 6 * len(engines))
        yield from driver.tells("abort_generation")
        enough.add(step)
        yield from driver.gets(generating)
        yield from driver.does("compute_rewards", 1, step, works=False)
        yield from driver.asks(trainers, "train", lambda rank: trains(rank, meeting, step), step)
        yield from driver.asks(engines, "sync", doing(WEIGHTS, 1, step, works=False), step)

    cluster.steps(DRIVER, one)


def _dynamic_sampling(world: World, _: str) -> None:
    """DAPO on workers that generate and train: rounds of generation until enough prompts teach.

    Two ranks share a model while they generate, all reduce in their update: nothing records it.
    """
    cluster = Cluster(world)
    workers = cluster["Worker"]
    pairs = [Meeting(workers[first : first + 2]) for first in range(0, len(workers), 2)]
    everybody = Meeting(workers)
    rounds = 1 + (3 * uniform(world.machine.seed, "rounds", world.steps)[:, 0] ** 2).astype(int)

    def one(driver: Rank, step: int) -> Program:
        def generates(rank: Rank) -> Program:
            yield from _hides(rank, pairs[rank.number // 2], "generate", 14, step)

        def updates(rank: Rank) -> Program:
            yield from rank.loads(step)
            yield from _hides(rank, everybody, "update_policy", 13, step)

        for _ in range(rounds[step]):
            yield from driver.asks(workers, "generate_sequences", generates, step)
            yield from driver.does("filter_groups", 0.8, step, works=False)
        yield from driver.asks(workers, "compute_log_prob", doing("log_prob", 6, step), step)
        yield from driver.does("compute_advantage", 1, step, works=False)
        yield from driver.asks(workers, "update_actor", updates, step)

    cluster.steps(DRIVER, one)


def _reward_farm(world: World, _: str) -> None:
    """Rollouts lease a verifier from a pool for each turn, and give it back.

    The pool is a queue of free verifiers; tests are of different lengths.
    """
    cluster = Cluster(world)
    rollouts, verifiers = cluster["Rollout"], cluster["Verifier"]
    pool, free = Channel(cluster, "verifiers", _UNBOUNDED), deque(verifiers)
    turns = 3
    tests = _varied(world, "tests", 0.4, turns * len(rollouts))

    def one(driver: Rank, step: int) -> Program:
        def rolls_out(rank: Rank) -> Program:
            for turn in range(turns):
                yield from rank.does("generate", 7, step)
                yield from pool.get(rank, "Rollout")
                verifier = free.popleft()
                test = tests[step][turns * rank.number + turn]
                yield from rank.asks([verifier], "verify", doing("run_tests", 3, step, share=test),
                                     step)  # fmt: skip
                free.append(verifier)
                yield from pool.put(rank, None)  # type: ignore[arg-type]

        for _ in verifiers if step == 0 else ():
            yield from pool.put(driver, None)  # type: ignore[arg-type]
        yield from driver.asks(rollouts, "rollout", rolls_out, step)
        yield from driver.does("update_policy", 5, step, works=False)

    cluster.steps(DRIVER, one)


# Training under torchrun


def _preference(world: World, _: str) -> None:
    """DPO: half of the ranks hold the frozen reference, each for one rank that trains.

    The reference goes on with the next batch while the policy learns.
    """
    cluster = Cluster(world)
    ranks = cluster["Rank"]
    half = len(ranks) // 2
    couples = [[policy, ranks[half + policy.number]] for policy in ranks[:half]]
    _grouped(world, "Rank", "reference", couples)
    _grouped(world, "Rank", "policy", [ranks[:half]])
    pairs, policies = [Meeting(couple) for couple in couples], Meeting(ranks[:half])

    def one(rank: Rank, step: int) -> Program:
        yield from rank.loads(step)
        yield from rank.does("forward", 10, step)
        yield from pairs[rank.number % half].meets(rank, "torch.broadcast", 0.3, step)
        if rank.number < half:
            yield from rank.does("backward", 12, step)
            yield from policies.meets(rank, "torch.all_reduce", 0.6, step)
            yield from rank.does("optimizer", 0.8, step)
            yield from rank.does(CHECKPOINT, 0, step, works=False)

    cluster.steps("Rank", one)


def _context_ring(world: World, _: str) -> None:
    """Ring attention: a block goes round the ring while each rank attends to the one before.

    The work is dealt evenly along the sequence, which grows twice in the run.
    """
    cluster = Cluster(world)
    ranks, size = cluster["Rank"], min(8, world.size("Rank"))
    rings = [ranks[first : first + size] for first in range(0, len(ranks), size)]
    _grouped(world, "Rank", "cp", rings)
    everybody, posted, layers = Meeting(ranks), Posted(cluster, 2, 0.2), 2

    def one(rank: Rank, step: int) -> Program:
        ring, place = divmod(rank.number, size)
        length = (0.6, 1.0, 1.4)[3 * step // world.steps]
        yield from rank.loads(step)
        for layer, hop in itertools.product(range(layers), range(size)):
            if hop == 0:
                yield from rank.does("project", 1, step, share=length)
            own, before = rings[ring][place].number, rings[ring][place - 1].number
            keys = [f"block:{step}:{layer}:{hop}:{sender}" for sender in (own, before)]
            if hop < size - 1:
                yield from posted.begins(rank, "torch.batch_isend_irecv", *keys)
            yield from rank.does("attend", 10 / size / layers, step, share=length)
            if hop < size - 1:
                yield from rank.hears("torch.wait", "*", *keys)
        yield from rank.does("backward", 11, step, share=length)
        yield from everybody.meets(rank, "torch.all_reduce", 0.6, step)
        yield from rank.does("optimizer", 0.6, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    cluster.steps("Rank", one)


def _packed_accumulation(world: World, _: str) -> None:
    """DDP that accumulates four packed batches: only the last one's `backward` reduces, unseen.

    Packs have different numbers of tokens.
    """
    cluster = Cluster(world)
    meeting, batches = Meeting(cluster["Rank"]), 4
    ranks = world.size("Rank")
    tokens = [_varied(world, f"tokens/{batch}", 0.15, ranks) for batch in range(batches)]

    def one(rank: Rank, step: int) -> Program:
        def reduces(share: float) -> Program:
            yield from rank.takes("backward", 3.5, step, works=True, share=share)
            yield from meeting.unseen(0.7)

        for batch in range(batches):
            share = tokens[batch][step][rank.number]
            yield from rank.loads(step)
            yield from rank.does("forward", 2, step, share=share)
            if batch < batches - 1:
                yield from rank.does("backward", 3.5, step, share=share)
            else:
                yield from rank.within("backward", reduces(share))
        yield from rank.does("optimizer", 0.8, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    cluster.steps("Rank", one)


def _diloco(world: World, _: str) -> None:
    """DiLoCo: each island reduces in all steps, but islands meet only in every fifth one."""
    cluster = Cluster(world)
    ranks = cluster["Rank"]
    size = 4 if len(ranks) >= 8 else 2
    islands = [ranks[first : first + size] for first in range(0, len(ranks), size)]
    _grouped(world, "Rank", "island", islands)
    within, everybody = [Meeting(island) for island in islands], Meeting(ranks)

    def one(rank: Rank, step: int) -> Program:
        yield from rank.loads(step)
        yield from rank.does("forward", 7, step)
        yield from rank.does("backward", 11, step)
        yield from within[rank.number // size].meets(rank, "torch.all_reduce", 0.4, step)
        yield from rank.does("inner_step", 0.6, step)
        if step % 5 == 4:
            yield from everybody.meets(rank, "outer_all_reduce", 6, step)
            yield from rank.does("outer_step", 1.5, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    cluster.steps("Rank", one)


def _sharded_prefetch(world: World, _: str) -> None:
    """ZeRO's third stage: a layer's weights are gathered while the one before it computes.

    Gradients are scattered without waiting, until the optimizer needs them.
    """
    cluster = Cluster(world)
    layers, posted = 4, Posted(cluster, world.size("Rank"), 0.4)

    def one(rank: Rank, step: int) -> Program:
        reduced: list[str] = []
        order = [("forward", layer) for layer in range(layers)]
        order += [("backward", layer) for layer in reversed(range(layers))]
        keys = [f"{scope}:{step}:{layer}" for scope, layer in order]

        def gathers(index: int) -> Program:
            if index < len(order):
                yield from posted.begins(rank, "torch.all_gather_into_tensor", keys[index])

        yield from rank.loads(step)
        yield from gathers(0)
        for index, (scope, layer) in enumerate(order):
            yield from rank.hears("torch.wait", "*", keys[index])
            yield from gathers(index + 1)
            yield from rank.does(scope, 2 if scope == "forward" else 3, step)
            if scope == "backward":
                reduced.append(f"reduce:{step}:{layer}")
                yield from posted.begins(rank, "torch.reduce_scatter_tensor", reduced[-1])
        for key in reduced:
            yield from rank.hears("torch.wait", "*", key)
        yield from rank.does("optimizer", 0.6, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)
        yield from rank.does(LOG, 0, step, works=False)

    cluster.steps("Rank", one)


def _gossip(world: World, _: str) -> None:
    """Decentralised SGD: in each step a rank averages with one other, and all never meet.

    The partner is another in each step, by the bits of the ranks' numbers.
    """
    cluster = Cluster(world)
    ranks = cluster["Rank"]
    bits = (len(ranks) - 1).bit_length()
    pairs = {
        (low, low ^ 1 << bit): Meeting([ranks[low], ranks[low ^ 1 << bit]])
        for bit in range(bits) for low in range(len(ranks)) if low < low ^ 1 << bit < len(ranks)
    }  # fmt: skip

    def one(rank: Rank, step: int) -> Program:
        yield from rank.loads(step)
        yield from rank.does("forward", 7, step)
        yield from rank.does("backward", 11, step)
        partner = rank.number ^ 1 << step % bits
        pair = min(rank.number, partner), max(rank.number, partner)
        if pair in pairs:
            yield from pairs[pair].meets(rank, "torch.all_reduce", 0.8, step)
        yield from rank.does("optimizer", 0.6, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    cluster.steps("Rank", one)


def _stale_synchronous(world: World, _: str) -> None:
    """A parameter table with bounded staleness: nobody is three steps ahead of the slowest."""
    cluster = Cluster(world)
    workers, staleness = cluster["Worker"], 3

    def one(rank: Rank, step: int) -> Program:
        if step >= staleness:
            clocks = [f"clock:{other.number}:{step - staleness}" for other in workers]
            yield from rank.hears("wait_for_slowest", "Worker", *clocks)
        yield from rank.loads(step)
        yield from rank.does("pull_parameters", 0.8, step, works=False)
        yield from rank.does("gradient", 19, step)
        yield from rank.tells("tick", f"clock:{rank.number}:{step}")

    cluster.steps("Worker", one)


# Data, environments, and drivers


def _tokenizers(world: World, _: str) -> None:
    """Each rank has a process that tokenizes documents ahead of it, into a queue of two batches.

    Documents are of different lengths; the reduction inside `backward` is not recorded.
    """
    cluster = Cluster(world)
    meeting = Meeting(cluster["Rank"])
    batches = [Channel(cluster, f"batches:{rank.number}", 2) for rank in cluster["Rank"]]
    lengths = _varied(world, "documents", 0.25, world.size("Tokenizer"))

    def tokenizes(rank: Rank) -> Program:
        while True:
            row = rank.row()
            yield from rank.does("tokenize", 17, row, share=lengths[row][rank.number])
            yield from batches[rank.number].put(rank, "Rank")

    def one(rank: Rank, step: int) -> Program:
        yield from rank.within(LOAD, batches[rank.number].get(rank, "Tokenizer"), "data")
        yield from rank.does("forward", 7, step)
        yield from _hides(rank, meeting, "backward", 12, step)
        yield from rank.does("optimizer", 0.8, step)
        yield from rank.does(CHECKPOINT, 0, step, works=False)

    for rank in cluster["Tokenizer"]:
        cluster.start(tokenizes(rank))
    cluster.steps("Rank", one)


def _double_buffer(world: World, _: str) -> None:
    """Environments in lockstep, in two halves: one steps while the sampler acts for the other.

    The sampler talks to each through a pipe; then it learns, while all of them wait for it.
    """
    cluster = Cluster(world)
    envs, turns = cluster["Env"], 6
    halves = [envs[::2], envs[1::2]]

    def passes(rank: Rank, scope: str, whom: str | None, key: str) -> Program:
        begin = cluster.now
        if whom:
            yield cluster.moments[key]
        yield 0.02
        rank.seen(scope, begin, whom, [key] if whom else (), () if whom else [key])
        if not whom:
            cluster.happens(cluster.moments[key])

    def interacts(rank: Rank) -> Program:
        for turn in itertools.count():
            yield from rank.does("env.step", 4, min(turn // turns, world.steps - 1))
            yield from passes(rank, "pipe.send", None, f"observed:{rank.number}:{turn}")
            yield from passes(rank, "pipe.recv", "*", f"action:{rank.number}:{turn}")

    def one(rank: Rank, step: int) -> Program:
        for turn, half in itertools.product(range(step * turns, (step + 1) * turns), halves):
            for env in half:
                yield from passes(rank, "pipe.recv", "*", f"observed:{env.number}:{turn}")
            yield from rank.does("act", 1.5, step)
            for env in half:
                yield from passes(rank, "pipe.send", None, f"action:{env.number}:{turn}")
        yield from rank.does("learn", 9, step)

    for rank in envs:
        cluster.start(interacts(rank))
    cluster.steps("Sampler", one)


def _central_inference(world: World, _: str) -> None:
    """SEED RL: environments ask a server for each action, which answers all that have come at once.

    Trainers take unrolls from a bounded queue, and reduce.
    """
    cluster = Cluster(world)
    servers, trainers = cluster["Inference"], cluster["Trainer"]
    unrolls, meeting = Channel(cluster, "unrolls", 2 * world.size("Actor")), Meeting(trainers)
    asked, come = [list[str]() for _ in servers], [Moment() for _ in servers]

    def acts(rank: Rank) -> Program:
        server = rank.number % len(servers)
        for turn in itertools.count():
            name = f"{rank.number}:{turn}"
            yield from rank.does("env.step", 3.5, rank.row())
            yield from rank.tells("send_observation", f"observed:{name}")
            asked[server].append(name)
            come[server] = cluster.renewed(come[server])
            yield from rank.hears("recv_action", "Inference", f"action:{name}")
            if turn % 4 == 3:
                yield from unrolls.put(rank, "Trainer")

    def infers(rank: Rank) -> Program:
        while True:
            begin = cluster.now
            while not asked[rank.number]:
                yield come[rank.number]
            batch, asked[rank.number] = asked[rank.number], []
            yield 0.05
            rank.seen("recv_batch", begin, "Actor", [f"observed:{name}" for name in batch])
            yield from rank.does("infer", 0.8, rank.row(), share=0.8 + 0.05 * len(batch))
            yield from rank.tells("send_actions", *(f"action:{name}" for name in batch))

    def one(rank: Rank, step: int) -> Program:
        yield from unrolls.get(rank, "Actor", max(1, world.size("Actor") // len(trainers)))
        yield from rank.does("learn", 17, step)
        yield from meeting.meets(rank, "torch.all_reduce", 0.5, step)

    for program in [*map(acts, cluster["Actor"]), *map(infers, servers)]:
        cluster.start(program)
    cluster.steps("Trainer", one)


def _batch_inference(world: World, _: str) -> None:
    """Ray Data with two pools of actors: the driver passes blocks on as they are ready.

    It lets no more than two blocks for each embedder be under way; blocks differ in size.
    """
    cluster = Cluster(world)
    readers, embedders = cluster["Preprocess"], cluster["Embed"]
    blocks, bound = 3 * len(embedders), 2 * len(embedders)
    sizes = _varied(world, "blocks", 0.3, blocks)

    def one(driver: Rank, step: int) -> Program:
        unread, idle, embedded = deque(sizes[step]), deque(readers), 0
        pending: list[Call] = []
        size_of: dict[str, float] = {}
        load = dict.fromkeys(range(len(embedders)), 0)
        while embedded < blocks:
            while unread and idle and len(pending) < bound:
                size = unread.popleft()
                reads = doing("decode_images", 20 * len(readers) / blocks, step, share=size)
                pending.append((yield from driver.sends(idle.popleft(), "map", reads)))
                size_of[pending[-1].key] = size
            ended = yield from driver.first(pending)
            if ended.to.group == "Preprocess":
                idle.append(ended.to)
                least = min(load, key=load.__getitem__)
                load[least] += 1
                embeds = doing("embed", 8, step, share=size_of[ended.key])
                call = yield from driver.sends(embedders[least], "map", embeds, [ended])
                pending.append(call)
            else:
                load[ended.to.number] -= 1
                embedded += 1
        yield from driver.does("write_manifest", 0.6, step, works=False)

    cluster.steps(DRIVER, one)


def _backup_workers(world: World, _: str) -> None:
    """Synchronous SGD with backup workers: the driver goes on without the slowest eighth.

    Who is late is given a batch again once it has ended, and its gradient is dropped.
    """
    cluster = Cluster(world)
    workers = cluster["Worker"]
    enough = len(workers) - max(1, len(workers) // 8)
    working: list[Call] = []
    begun: dict[str, int] = {}

    def one(driver: Rank, step: int) -> Program:
        def gradient(rank: Rank) -> Program:
            yield from rank.loads(step)
            yield from rank.does("forward", 7, step)
            yield from rank.does("backward", 12, step)

        def starts(ranks: Sequence[Rank]) -> Program:
            calls = yield from driver.fans_out(ranks, "gradient", gradient, step)
            working.extend(calls)
            begun.update({call.key: step for call in calls})

        late = {call.to.number for call in working}
        yield from starts([rank for rank in workers if rank.number not in late])
        fresh = 0
        while fresh < enough:
            ended = yield from driver.first(working)
            if begun[ended.key] == step:
                fresh += 1
            else:
                yield from starts([ended.to])
        yield from driver.does("apply_gradients", 1.5, step, works=False)

    cluster.steps(DRIVER, one)


def _league(world: World, _: str) -> None:
    """Self-play: the driver matches players, and lets any arena that is free play the match.

    A player learns as soon as its own matches are over, while others' go on.
    """
    cluster = Cluster(world)
    arenas, players = cluster["Arena"], cluster["Player"]
    matches = 4 * len(arenas)
    lengths = _varied(world, "matches", 0.4, matches)

    def one(driver: Rank, step: int) -> Program:
        waiting = deque(enumerate(lengths[step]))
        whose = [match * len(players) // matches for match in range(matches)]
        left, over = Counter(whose), defaultdict[int, list[Call]](list)
        playing, learning, player_of = list[Call](), list[Call](), dict[str, int]()

        def starts(arena: Rank) -> Program:
            match, length = waiting.popleft()
            yield from driver.does("matchmake", 4 / matches, step, works=False)
            plays = doing("play", 7, step, share=length)
            playing.append((yield from driver.sends(arena, "play", plays)))
            player_of[playing[-1].key] = whose[match]

        for arena in arenas:
            yield from starts(arena)
        while playing:
            ended = yield from driver.first(playing)
            player = player_of[ended.key]
            over[player].append(ended)
            left[player] -= 1
            if waiting:
                yield from starts(ended.to)
            if not left[player]:
                to, learns = players[player], doing("learn", 9, step)
                learning.append((yield from driver.sends(to, "learn", learns, over[player])))
        yield from driver.gets(learning)
        yield from driver.does("update_payoffs", 0.6, step, works=False)

    cluster.steps(DRIVER, one)


def _successive_halving(world: World, _: str) -> None:
    """Nested drivers: each trial drives two workers; the better half of the trials trains on.

    After three rungs of one, two, and three epochs, other trials begin.
    """
    cluster = Cluster(world)
    trials, workers = cluster["Trial"], cluster["Worker"]
    pairs = [workers[2 * trial.number : 2 * trial.number + 2] for trial in trials]
    meetings = [Meeting(pair) for pair in pairs]
    scores = uniform(world.machine.seed, "scores", world.steps, len(trials))

    def one(driver: Rank, step: int) -> Program:
        def epoch(rank: Rank) -> Program:
            yield from rank.does("train_epoch", 7, step)
            yield from meetings[rank.number // 2].meets(rank, "torch.all_reduce", 0.3, step)

        def runs(epochs: int) -> Callable[[Rank], Program]:
            def run(trial: Rank) -> Program:
                for _ in range(epochs):
                    yield from trial.asks(pairs[trial.number], "train", epoch, step)
                yield from trial.does("validate", 1.5, step)

            return run

        alive = [trials[number] for number in np.argsort(scores[step])]
        for epochs in (1, 2, 3):
            yield from driver.asks(alive, "run_rung", runs(epochs), step)
            yield from driver.does("promote", 0.4, step, works=False)
            alive = alive[-max(1, len(alive) // 2) :]

    cluster.steps(DRIVER, one)


def _even(ranks: int) -> int:
    """So many ranks, or one less."""
    return max(2, 2 * (ranks // 2))


SECOND = {
    "prefill and decode": topology(
        _prefill_decode, lambda ranks: {DRIVER: 1, "Prefill": part(ranks, 4), "Decode": ranks,
                                        "Trainer": part(ranks, 4)}, 52,
        {"Trainer": ("forward", "backward"), "Prefill": ("prefill",), "Decode": ("decode",)},
        (*RANK_KINDS, "imbalance", "slow loader", "serial driver", "between steps"),
        sites={"serial driver": (DRIVER, "compute_rewards")},
    ),
    "weight collective": topology(
        _weight_collective, lambda ranks: {DRIVER: 1, "Engine": ranks, "Policy": part(ranks, 2)},
        27, {"Policy": ("forward", "backward"), "Engine": ("generate",)},
        (*RANK_KINDS, "imbalance", "slow loader", "serial driver", "slow submission", "slow sync"),
        sites={"serial driver": (DRIVER, "compute_advantage"),
               "slow sync": ("Policy", "torch.broadcast")},
    ),
    "tree broadcast": topology(
        _tree_broadcast, lambda ranks: {"Trainer": part(ranks, 4), "Engine": ranks}, 34,
        {"Engine": ("generate", WEIGHTS), "Trainer": ("forward_backward",)},
        (*RANK_KINDS, "imbalance", "checkpoint", "slow sync"),
        sites={"checkpoint": ("Trainer", CHECKPOINT), "slow sync": ("Engine", WEIGHTS)},
    ),
    "partial rollouts": topology(
        _partial_rollouts, lambda ranks: {DRIVER: 1, "Engine": ranks, "Trainer": part(ranks, 2)},
        41, {"Engine": ("decode_chunk",), "Trainer": ("forward", "backward")},
        (*RANK_KINDS, "imbalance", "serial driver", "between steps"),
        sites={"serial driver": (DRIVER, "compute_rewards")},
    ),
    "dynamic sampling": topology(
        _dynamic_sampling, lambda ranks: {DRIVER: 1, "Worker": _even(ranks)}, 47,
        {"Worker": ("log_prob", "generate", "update_policy")},
        (*RANK_KINDS, "imbalance", "slow loader", "serial driver", "slow submission"),
        hidden=("generate", "update_policy"),
        sites={"serial driver": (DRIVER, "compute_advantage")},
    ),
    "reward farm": topology(
        _reward_farm, lambda ranks: {DRIVER: 1, "Rollout": ranks, "Verifier": part(ranks, 2)}, 44,
        {"Rollout": ("generate",), "Verifier": ("run_tests",)}, (*RANK_KINDS, "serial driver"),
        sites={"serial driver": (DRIVER, "update_policy")},
    ),
    "preference": topology(
        _preference, lambda ranks: {"Rank": _even(ranks)}, 26, {"Rank": ("forward", "backward")},
        MEETING_KINDS,
    ),
    "context ring": topology(
        _context_ring, lambda ranks: {"Rank": ranks if ranks < 8 else 8 * (ranks // 8)}, 26,
        {"Rank": ("attend", "backward")}, (*MEETING_KINDS, "between steps"),
    ),
    "packed accumulation": topology(
        _packed_accumulation, lambda ranks: {"Rank": ranks}, 28, {"Rank": ("forward", "backward")},
        (*MEETING_KINDS, UNEVEN),
    ),
    "diloco": topology(
        _diloco, lambda ranks: {"Rank": ranks}, 21, {"Rank": ("forward", "backward")},
        (*MEETING_KINDS, "slow sync"), sites={"slow sync": ("Rank", "outer_all_reduce")},
    ),
    "sharded prefetch": topology(
        _sharded_prefetch, lambda ranks: {"Rank": ranks}, 23, {"Rank": ("forward", "backward")},
        (*MEETING_KINDS, UNEVEN, "logging"),
    ),
    "gossip": topology(
        _gossip, lambda ranks: {"Rank": ranks}, 20, {"Rank": ("forward", "backward")},
        (*MEETING_KINDS, "between steps"),
    ),
    "stale synchronous": topology(
        _stale_synchronous, lambda ranks: {"Worker": ranks}, 20, {"Worker": ("gradient",)},
        (*RANK_KINDS, "imbalance", "late start", "slow loader", "slow loader everywhere"),
    ),
    "tokenizers": topology(
        _tokenizers, lambda ranks: {"Tokenizer": ranks, "Rank": ranks}, 20,
        {"Tokenizer": ("tokenize",), "Rank": ("forward", "backward")},
        (*RANK_KINDS, "imbalance", "checkpoint"), hidden=("backward",), feeds="Tokenizer",
    ),
    "double buffer": topology(
        _double_buffer, lambda ranks: {"Env": ranks, "Sampler": 1}, 41, {"Env": ("env.step",)},
        (*RANK_KINDS, "imbalance", "slow server", "between steps"), server=("Sampler", "learn"),
        sites={"between steps": ("Sampler", BETWEEN)},
    ),
    "central inference": topology(
        _central_inference, lambda ranks: {"Actor": ranks, "Inference": part(ranks, 16),
                                           "Trainer": 2}, 18,
        {"Actor": ("env.step",), "Inference": ("infer",), "Trainer": ("learn",)}, RANK_KINDS,
    ),
    "batch inference": topology(
        _batch_inference, lambda ranks: {DRIVER: 1, "Preprocess": part(ranks, 2), "Embed": ranks},
        43, {"Preprocess": ("decode_images",), "Embed": ("embed",)},
        (*RANK_KINDS, "serial driver", "between steps"),
        sites={"serial driver": (DRIVER, "write_manifest")},
    ),
    "backup workers": topology(
        _backup_workers, lambda ranks: {DRIVER: 1, "Worker": ranks}, 22,
        {"Worker": ("forward", "backward")},
        (*RANK_KINDS, "slow loader", "serial driver", "between steps"),
        sites={"serial driver": (DRIVER, "apply_gradients")},
    ),
    "league": topology(
        _league, lambda ranks: {DRIVER: 1, "Arena": ranks, "Player": part(ranks, 8)}, 49,
        {"Arena": ("play",), "Player": ("learn",)}, (*RANK_KINDS, "serial driver"),
        sites={"serial driver": (DRIVER, "update_payoffs")},
    ),
    "successive halving": topology(
        _successive_halving, lambda ranks: {DRIVER: 1, "Trial": part(ranks, 2),
                                            "Worker": 2 * part(ranks, 2)}, 53,
        {"Worker": ("train_epoch",), "Trial": ("validate",)},
        (*RANK_KINDS, "imbalance", "serial driver"), sites={"serial driver": (DRIVER, "promote")},
    ),
}  # fmt: skip

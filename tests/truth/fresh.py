"""Twenty kinds of jobs that `explain` was not tuned for. All times are milliseconds."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque

import numpy as np

from truth.causes import normal, uniform
from truth.processes import (
    MEETING_KINDS,
    RANK_KINDS,
    Call,
    Channel,
    Cluster,
    Meeting,
    Program,
    Rank,
    doing,
    part,
    topology,
    trains,
)
from truth.topologies import CHECKPOINT, LOAD, WEIGHTS
from truth.world import DRIVER, World


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

        actors, generates = cluster["Actor"], doing("generate", 26, step)
        generated = yield from driver.fans_out(actors, "rollout", generates, step)
        scored = []
        for group, scope, usual in models:
            scored += yield from driver.fans_out(
                cluster[group], f"compute_{scope}", doing(scope, usual, step), step, generated
            )
        yield from driver.gets(scored)
        yield from driver.does("compute_advantage", 1.5, step, works=False)
        updated = []
        for group in meeting:
            updated += yield from driver.fans_out(
                cluster[group], "train", lambda rank: rank.within("update", updates(rank)), step
            )
        yield from driver.gets(updated)
        yield from driver.asks(actors, "sync", doing(WEIGHTS, 1.5, step, works=False), step)

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
            sample = doing("sample", 11, step)
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
        save, restore = doing(CHECKPOINT, 2, step, False), doing(WEIGHTS, 1, step, False)
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
                decodes = doing("decode", 8, step, share=length)
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
            trainers, "train_step", lambda rank: trains(rank, meeting, step), step
        )
        if step % 4 == 3:
            if evaluating:
                yield from driver.gets(evaluating)
            copies, predicts = doing("copy_state", 1, step), doing("predict", 50, step)
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
        yield from trains(rank, meeting, step)
        yield from rank.does("optimizer", 0.6, step)
        if step % 5 == 2:
            if rank.number in uploading:
                yield from rank.gets([uploading[rank.number]])
            yield from rank.does("copy_state", 3, step)
            writer = cluster["Writer"][rank.number // 4]
            uploads = doing("upload", 16, step)
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
            acts = doing("act", 2 / len(simulators), step)
            for _ in range(4):
                yield from rank.asks(policies, "act", acts, step)
                yield from rank.does("simulate", 6, step)

        yield from driver.asks(simulators, "play", plays, step)
        yield from driver.asks(policies, "learn", doing("update", 6, step), step)

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
            here, "train_step", lambda rank: trains(rank, meeting, step, share), step
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
        sample = doing("sample", 8 / len(trainers), step)
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


FRESH = {
    "rlhf": topology(
        _rlhf, lambda ranks: {DRIVER: 1, "Actor": ranks, "Critic": part(ranks, 2),
                              "Reference": part(ranks, 2), "Reward": part(ranks, 4)}, 55,
        {"Actor": ("generate", "update"), "Critic": ("values",), "Reference": ("log_prob",),
         "Reward": ("score",)},
        (*RANK_KINDS, "imbalance", "serial driver", "between steps", "slow sync"),
        hidden=("update",),
        sites={"serial driver": (DRIVER, "compute_advantage"), "slow sync": ("Actor", WEIGHTS)},
    ),
    "stale rollouts": topology(
        _stale_rollouts, lambda ranks: {"Rollout": ranks, "Trainer": part(ranks, 2)}, 25,
        {"Rollout": ("generate",), "Trainer": ("forward_backward",)}, (*RANK_KINDS, "slow sync"),
    ),
    "impala": topology(
        _impala, lambda ranks: {DRIVER: 1, "EnvRunner": ranks, "Aggregator": part(ranks, 8),
                                "Learner": 1}, 18,
        {"EnvRunner": ("EnvRunner.sample",), "Aggregator": ("Aggregator.add",)},
        (*RANK_KINDS, "slow server", "serial driver", "between steps"),
        sites={"slow server": ("Learner", "Learner.update"),
               "serial driver": (DRIVER, "collect_metrics")},
    ),
    "replay shards": topology(
        _replay_shards, lambda ranks: {"Replay": ranks, "Actor": ranks, "Learner": 1}, 15,
        {"Replay": ("sample",), "Actor": ("env.step",)}, (*RANK_KINDS, "slow server"),
    ),
    "population": topology(
        _population, lambda ranks: {DRIVER: 1, "Trial": ranks}, 38,
        {"Trial": ("Trial.train",)}, (*RANK_KINDS, "serial driver", "slow sync"),
        sites={"serial driver": (DRIVER, "exploit_and_explore"), "slow sync": ("Trial", WEIGHTS)},
    ),
    "uneven pipeline": topology(
        _uneven_pipeline, lambda ranks: {"Rank": max(3, min(ranks, 16))}, 160,
        {"Rank": ("forward", "backward")}, ("slow rank", "pauses", "drift", "between steps"),
    ),
    "experts": topology(
        _experts, lambda ranks: {"Rank": 4 * max(1, ranks // 4)}, 38,
        {"Rank": ("experts", "attention", "backward")}, (*MEETING_KINDS, "slow sync"),
        sites={"slow sync": ("Rank", "all_to_all")},
    ),
    "router": topology(
        _router, lambda ranks: {DRIVER: 1, "Router": 1, "Engine": ranks}, 47,
        {"Engine": ("decode",)}, (*RANK_KINDS, "slow server", "serial driver"),
        sites={"slow server": ("Router", "route"), "serial driver": (DRIVER, "score_responses")},
    ),
    "streaming data": topology(
        _streaming_data, lambda ranks: {"Mapper": ranks, "Trainer": part(ranks, 2)}, 22,
        {"Mapper": ("map_batches",), "Trainer": ("forward", "backward")},
        (*RANK_KINDS, "checkpoint"), sites={"checkpoint": ("Trainer", CHECKPOINT)}, feeds="Mapper",
    ),
    "federated": topology(
        _federated, lambda ranks: {DRIVER: 1, "Client": max(3, ranks)}, 38,
        {"Client": ("Client.fit",)}, (*RANK_KINDS, "serial driver", "slow submission"),
        hidden=("Client.fit",),  # no ledger tells how much data a client has
        sites={"serial driver": (DRIVER, "aggregate")},
    ),
    "hierarchy": topology(
        _hierarchy, lambda ranks: {"Rank": ranks}, 24, {"Rank": ("backward", "forward")},
        (*MEETING_KINDS, "slow sync"), sites={"slow sync": ("Rank", "all_reduce_nodes")},
    ),
    "evaluation": topology(
        _evaluation, lambda ranks: {DRIVER: 1, "Trainer": ranks, "Evaluator": part(ranks, 4)}, 22,
        {"Trainer": ("backward",), "Evaluator": ("predict",)},
        (*RANK_KINDS, "slow loader", "serial driver"),
        sites={"serial driver": (DRIVER, "log_metrics")},
    ),
    "checkpoint writers": topology(
        _checkpoint_writers, lambda ranks: {"Trainer": ranks, "Writer": -(-ranks // 4)}, 22,
        {"Trainer": ("forward", "backward")},
        (*RANK_KINDS, "imbalance", "late start", "slow loader", "slow server"),
        sites={"slow server": ("Writer", "upload")},
    ),
    "curriculum": topology(
        _curriculum, lambda ranks: {DRIVER: 1, "Curriculum": 1, "Worker": ranks}, 43,
        {"Worker": ("episode",)}, (*RANK_KINDS, "slow server", "serial driver"),
        sites={"slow server": ("Curriculum", "choose_task"),
               "serial driver": (DRIVER, "update_policy")},
    ),
    "many agents": topology(
        _many_agents, lambda ranks: {DRIVER: 1, "Simulator": ranks, "Policy": min(4, ranks)}, 38,
        {"Simulator": ("simulate",), "Policy": ("act", "update")}, (*RANK_KINDS, "imbalance"),
    ),
    "speculative": topology(
        _speculative, lambda ranks: {DRIVER: 1, "Draft": ranks, "Target": ranks}, 58,
        {"Draft": ("propose",), "Target": ("verify",)}, (*RANK_KINDS, "serial driver"),
        lacks="messages over sockets", sites={"serial driver": (DRIVER, "score_responses")},
    ),
    "controllers": topology(
        _controllers, lambda ranks: {DRIVER: 1, "Controller": part(ranks, 4), "Worker": ranks}, 25,
        {"Worker": ("Worker.rollout",), "Controller": ("merge",)},
        (*RANK_KINDS, "serial driver", "between steps"), sites={"serial driver": (DRIVER, "plan")},
    ),
    "elastic": topology(
        _elastic, lambda ranks: {DRIVER: 1, "Worker": ranks}, 28,
        {"Worker": ("backward", "forward")},
        (*RANK_KINDS, "imbalance", "slow loader", "slow submission"),
    ),
    "shared replay": topology(
        _shared_replay, lambda ranks: {"Trainer": max(4, 2 * (ranks // 2)),
                                       "Collector": part(ranks, 2), "Replay": 1}, 21,
        {"Trainer": ("backward", "forward"), "Collector": ("env.step",)},
        (*RANK_KINDS, "slow server"), sites={"slow server": ("Replay", "sample")},
    ),
    "restarts": topology(
        _restarts, lambda ranks: {"Rank": ranks}, 1550, {"Rank": ("backward", "forward")}, (),
    ),
}  # fmt: skip

"""How the processes of a generated job wait for each other. All times are milliseconds."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import attrs
import numpy as np

from truth.causes import BETWEEN, COLLECTOR, START, SUBMIT, UNEVEN
from truth.world import DRIVER, World

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CHECKPOINT = "save_checkpoint"
LOAD = "next_batch"
WEIGHTS = "load_weights"
SYNC = "actor/sync_model_to_rollout"
PPO = ("RolloutGroup", "EnvGroup", "ActorGroup")
LOG = "log_metrics"
_RANK_KINDS = (
    "slow rank", "two slow ranks", "slow node", "slow everywhere", "pauses", "drift", UNEVEN,
)  # fmt: skip
_TRAINER_KINDS = (
    *_RANK_KINDS, "imbalance", "slow loader", "slow loader everywhere", "late start", "checkpoint",
    "logging",
)  # fmt: skip
_DRIVER_KINDS = ("serial driver", "between steps")
_CALLER_KINDS = (*_DRIVER_KINDS, "slow submission")


@attrs.frozen
class Topology:
    """A kind of job.

    Args:
        run: lets a world of it run.
        groups: for a number of ranks, the groups.
        step: milliseconds of a usual step, about.
        places: by group, where ranks may be slow.
        kinds: the causes that it can have.
        hidden: scopes in which ranks meet unseen, or have different amounts of work that no
            ledger tells: who is slow there cannot be told.
        lacks: what makes its processes wait and is in no ledger yet; empty for nothing.
        mechanisms: what may be added to it that `explain` does not model.
        most: ranks.
        server: the group whose only rank others queue for, and where it works; empty for none.
        sites: by kind of cause, the group and the scope where it strikes, if not where it usually
            does.
        feeds: the group that makes the data for which the others wait; empty for none.
    """

    run: Callable[[World, str], None]
    groups: Callable[[int], dict[str, int]]
    step: float
    places: dict[str, tuple[str, ...]]
    kinds: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    lacks: str = ""
    mechanisms: tuple[str, ...] = ("retries",)
    most: int = 4096
    server: tuple[str, str] = ("", "")
    sites: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    feeds: str = ""


# What drivers do


class _Calls(NamedTuple):
    """Calls that the driver has sent.

    Args:
        sent: when it had sent the last.
        ended: when the last had ended.
        keys: of those that it waits for.
    """

    sent: float
    ended: float
    keys: list[str]


def _sent(
    world: World, step: int, method: str, now: float, sender: str = DRIVER
) -> tuple[Floats, list[str]]:
    """The driver sends a method to all ranks of a group: ``Group.method``.

    Args:
        sender: the group whose first rank sends it instead.

    Returns:
        When each had been sent, and the keys.
    """
    ranks = world.size(method.partition(".")[0])
    usual = min(0.04 * ranks, 2.0)
    each = float(world.at(sender, SUBMIT, usual, step, works=False)[0]) / ranks
    sent = now + each * np.arange(1, ranks + 1)
    keys = [f"ray:{method}:{step}:{rank}" for rank in range(ranks)]
    for end, key in zip(sent.tolist(), keys, strict=True):
        world.sent(sender, end - each, end, key)
    return sent, keys


def _called(
    world: World,
    method: str,
    step: int,
    now: float,
    work: Callable[[int, Floats], Floats],
    sender: str = DRIVER,
) -> _Calls:
    """The driver calls a method of all ranks of a group: ``Group.method``.

    Args:
        work: from the step and the ranks' times when they begin.
        sender: as for `_sent`.
    """
    group = method.partition(".")[0]
    sent, keys = _sent(world, step, method, now, sender)
    began = sent + 0.3 + world.at(group, START, 0, step, works=False)
    ended = work(step, began)
    world.span(group, (method,), began, ended + 0.02, releases=lambda rank: keys[rank : rank + 1])
    return _Calls(float(sent[-1]), float(ended.max()) + 0.02, keys)


def _got(world: World, scope: str, begin: float, calls: _Calls) -> float:
    """The driver waits for calls, in a scope that it began earlier. Returns when it goes on."""
    asked = max(begin, calls.sent) + 0.05
    got = max(asked, calls.ended) + 0.1
    world.span(DRIVER, ("main_loop", scope), begin, got + 0.02)
    world.span(
        DRIVER, ("main_loop", scope, "ray.get"), asked, got,
        waits_for="*", waits=lambda _: calls.keys,
    )  # fmt: skip
    return got + 0.03


def _driver_works(world: World, scope: str, usual: float, step: int, now: float) -> float:
    at = np.array([now])
    return float(world.run(DRIVER, ("main_loop", scope), usual, step, at, works=False)[0])


def _between(world: World, step: int, now: float) -> float:
    return now + 0.2 + float(world.at(DRIVER, BETWEEN, 0, step, works=False)[0])


# What trainers do


def _loaded(
    world: World, group: str, around: tuple[str, ...], step: int, now: Floats, shared: bool
) -> Floats:
    """The ranks get their batches; over a shared network, one after the other."""
    if not shared:
        return world.run(group, (*around, LOAD), 0.5, step, now, works=False, waits_for="data")
    took = world.at(group, LOAD, 8 / world.size(group), step, works=False)
    ends, free = np.zeros(len(now)), 0.0
    for rank in np.argsort(now, kind="stable").tolist():
        free = ends[rank] = max(free, float(now[rank])) + float(took[rank])
    world.span(group, (*around, LOAD), now, ends, waits_for="data")
    return ends


def _reduced(
    world: World, group: str, around: tuple[str, ...], step: int, now: Floats, call: int = 0
) -> Floats:
    """All ranks meet in a collective that is recorded."""
    took = float(world.at(group, "all_reduce", 0.4, step, works=False, call=call)[0])
    out = np.full(len(now), now.max() + took)
    world.span(
        group, (*around, "all_reduce"), now, out,
        waits_for="barrier", meets=lambda _: [f"dist:{step}:{call}"],
    )  # fmt: skip
    return out


def _fan_out(world: World, mechanism: str, mixed: bool = False) -> None:
    """A driver calls all ranks and waits for them."""
    group, now = "Trainer", 20.0

    def train(step: int, now: Floats) -> Floats:
        at = _loaded(world, group, ("Trainer.train",), step, now, mechanism == "shared network")
        begun = at
        for scope, usual in (("forward", 8.0), ("backward", 12.0)):
            at = world.run(group, ("Trainer.train", scope), usual, step, at)
        world.adapt(group, at - begun)
        at = world.run(group, ("Trainer.train", CHECKPOINT), 0, step, at, works=False)
        return world.run(group, ("Trainer.train", LOG), 0, step, at, works=False)

    def evaluate(step: int, now: Floats) -> Floats:
        return world.run(group, ("Trainer.evaluate", "predict"), 25, step, now)

    for step in range(world.steps):
        now = _between(world, step, now)
        begin = now
        trained = _called(world, "Trainer.train", step, now, train)
        now = _got(world, "runner/train", now, trained)
        if mixed and step % 5 == 3:
            evaluated = _called(world, "Trainer.evaluate", step, now, evaluate)
            now = _got(world, "runner/evaluate", now, evaluated)
        now = _driver_works(world, "runner/compute_metrics", 0.5, step, now)
        world.step(DRIVER, step, begin, now)
    world.span(DRIVER, ("main_loop",), 0, now)


def _mixed(world: World, mechanism: str) -> None:
    """Steps of several kinds: every fifth evaluates as well."""
    _fan_out(world, mechanism, mixed=True)


def _data_parallel(world: World, mechanism: str, hidden: bool = False) -> None:
    """Ranks that mark their own steps, and meet in a collective that is recorded."""
    group = "Rank"
    now = np.full(world.size(group), 20.0)
    for step in range(world.steps):
        now = now + 0.2 + world.at(group, BETWEEN, 0, step, works=False)
        begin = now
        now = now + world.at(group, START, 0, step, works=False)
        now = _loaded(world, group, (), step, now, mechanism == "shared network")
        begun = now
        now = world.run(group, ("forward",), 8, step, now)
        if hidden:
            reduced = float((now + world.at(group, "backward", 12, step)).max())
            reduced += float(world.at(group, "all_reduce", 0.4, step, works=False)[0])
            world.span(group, ("backward",), now, reduced)
            now = np.full(len(now), reduced)
        else:
            now = world.run(group, ("backward",), 12, step, now)
            world.adapt(group, now - begun)
            now = _reduced(world, group, (), step, now)
        now = world.run(group, ("optimizer",), 0.6, step, now)
        now = world.run(group, (CHECKPOINT,), 0, step, now, works=False)
        now = world.run(group, (LOG,), 0, step, now, works=False)
        world.step(group, step, begin, now)


def _hidden_collective(world: World, mechanism: str) -> None:
    """The same, but the collective is inside `backward`, and nothing records it."""
    if mechanism == "host runs ahead":
        _runs_ahead(world)
    else:
        _data_parallel(world, mechanism, hidden=True)


def _runs_ahead(world: World) -> None:
    """The host queues the device's work, and waits for the step before."""
    group = "Rank"
    now = np.full(world.size(group), 20.0)
    device, before = now.copy(), now.copy()
    for step in range(world.steps):
        now = now + 0.2 + world.at(group, BETWEEN, 0, step, works=False)
        begin = now
        now = now + world.at(group, START, 0, step, works=False)
        now = world.run(group, (LOAD,), 0.5, step, now, works=False, waits_for="data")
        for scope, usual in (("forward", 8.0), ("backward", 12.0)):
            queued = now + 0.3
            world.span(group, (scope,), now, queued)
            device = np.maximum(device, queued) + world.at(group, scope, usual, step)
            now = queued
        device = np.full(len(now), device.max() + 0.4)
        read = np.maximum(now, before) + 0.05
        world.span(group, ("loss.item",), now, read)
        now, before = read, device
        now = world.run(group, (CHECKPOINT,), 0, step, now, works=False)
        now = world.run(group, (LOG,), 0, step, now, works=False)
        world.step(group, step, begin, now)


def _subgroups(world: World, _: str) -> None:
    """Each half of the ranks meets unseen in `backward`; then all meet in a recorded collective."""
    group = "Rank"
    now = np.full(world.size(group), 20.0)
    half = len(now) // 2
    for step in range(world.steps):
        begin = now = now + 0.2
        now = _loaded(world, group, (), step, now, False)
        now = world.run(group, ("forward",), 8, step, now)
        arrived = (now + world.at(group, "backward", 12, step)).reshape(2, half).max(axis=1)
        took = world.at(group, "reduce_scatter", 0.4, step, works=False)[:2]
        reduced = np.repeat(arrived + took, half)
        world.span(group, ("backward",), now, reduced)
        now = _reduced(world, group, (), step, reduced)
        now = world.run(group, (CHECKPOINT,), 0, step, now, works=False)
        now = world.run(group, (LOG,), 0, step, now, works=False)
        world.step(group, step, begin, now)


def shape_of(ranks: int) -> tuple[int, int, int]:
    """Stages, replicas and shards of a model on so many ranks, a multiple of 8."""
    stages = 2 if ranks < 16 else 4
    return stages, ranks // stages // 2, 2


def _stages(world: World, _: str, hidden: bool = False) -> None:
    """Tensor, pipeline and data parallel: each rank is in a group of each kind.

    A stage waits for the one before it by keys. Shards meet in each forward and backward, replicas
    once a step. Only the first stage loads, and only the last has a loss.
    """
    group, ranks, batches = "Rank", world.size("Rank"), 2
    stages, replicas, shards = shape = shape_of(ranks)
    of = np.arange(ranks).reshape(shape)  # stage, replica, shard
    if world.machine.seed % 3:  # an instrument notes process groups in most jobs, not in all
        for name, axis in (("pp", 0), ("dp", 1), ("tp", 2)):
            for members in np.moveaxis(of, axis, -1).reshape(-1, shape[axis]):
                world.grouped(group, name, members.tolist())
    now = np.full(ranks, 20.0)

    def at_stage(stage: int, end: Floats) -> Floats:
        """The ranks' times when those of a stage go on."""
        mine = np.zeros(shape, bool)
        mine[stage] = True
        return np.where(mine.ravel(), end, now)

    def passed(stage: int, direction: str, step: int, batch: int) -> Callable[[int], list[str]]:
        """The key of what a rank hands over to the one of a stage in its place."""
        place = dict(zip(range(ranks), np.indices(shape)[1:].reshape(2, -1).T.tolist(),
                         strict=True))  # fmt: skip
        return lambda rank: [f"{direction}:{step}:{batch}:{stage}:{place[rank]}"]

    def handled(stage: int, before: int | None, scope: str, usual: float, step: int, batch: int
                ) -> None:  # fmt: skip
        nonlocal now
        if before is not None:
            there = sent[scope, batch, before]
            arrived = np.broadcast_to(there, shape).ravel()
            received = at_stage(stage, np.maximum(now, arrived) + 0.05)
            world.span(group, (f"recv_{scope}",), now, received, waits_for=group,
                       waits=passed(stage, scope, step, batch))  # fmt: skip
            now = received
        worked = at_stage(stage, now + world.at(group, scope, usual, step, call=batch))
        met = np.broadcast_to(worked.reshape(shape).max(axis=2, keepdims=True), shape).ravel()
        took = float(world.at(group, "reduce_shards", 0.2, step, works=False, call=batch)[0])
        met = at_stage(stage, met + took)
        if hidden:
            world.span(group, (scope,), now, met)
        else:
            world.span(group, (scope,), now, worked)
            world.span(
                group, ("all_reduce",), worked, met, waits_for="barrier",
                meets=lambda rank: [f"tp:{step}:{batch}:{scope}:{rank // shards}"],
            )  # fmt: skip
        now = met
        if scope == "forward" and stage == stages - 1:
            now = at_stage(stage, now + world.at(group, "loss", 0.3, step, False, batch))
            world.span(group, ("loss",), met, now)
        after = stage + (1 if scope == "forward" else -1)
        if 0 <= after < stages:
            handed = at_stage(stage, now + 0.05)
            world.span(group, (f"send_{scope}",), now, handed,
                       releases=passed(after, scope, step, batch))  # fmt: skip
            now = handed
            sent[scope, batch, stage] = now.reshape(shape)[stage]

    for step in range(world.steps):
        sent: dict[tuple[str, int, int], Floats] = {}
        begin = now = now + 0.2
        now = at_stage(0, now + world.at(group, LOAD, 0.5, step, works=False))
        world.span(group, (LOAD,), begin, now, waits_for="data")
        for batch in range(batches):
            for stage in range(stages):
                handled(stage, stage - 1 if stage else None, "forward", 4, step, batch)
        for batch in range(batches):
            for stage in reversed(range(stages)):
                before = stage + 1 if stage < stages - 1 else None
                handled(stage, before, "backward", 6, step, batch)
        met = np.broadcast_to(now.reshape(shape).max(axis=1, keepdims=True), shape).ravel()
        met = met + float(world.at(group, "reduce_replicas", 0.4, step, works=False)[0])
        world.span(group, ("all_reduce",), now, met, waits_for="barrier",
                   meets=lambda rank, step=step: [
                       f"dp:{step}:{rank // shards // replicas}:{rank % shards}"
                   ])  # fmt: skip
        now = world.run(group, ("optimizer",), 0.6, step, met)
        now = world.run(group, (CHECKPOINT,), 0, step, now, works=False)
        now = world.run(group, (LOG,), 0, step, now, works=False)
        world.step(group, step, begin, now)


def _hidden_stages(world: World, mechanism: str) -> None:
    """The same, but shards meet inside `forward` and `backward`, and nothing records it."""
    _stages(world, mechanism, hidden=True)


def _pipeline(world: World, _: str) -> None:
    """Ranks are stages: sender and receiver of an activation wait for each other."""
    group, batches = "Rank", 4
    stages, messages = world.size(group), 0
    now = [20.0] * stages

    def hand_over(sender: int, receiver: int) -> None:
        nonlocal messages
        both = max(now[sender], now[receiver]) + 0.1
        messages += 1
        key = [f"message:{messages}"]
        for name, rank in (("torch.send", sender), ("torch.recv", receiver)):
            world.span(group, (name,), now[rank], both, rank, "barrier", meets=lambda _: key)
        now[sender] = now[receiver] = both

    def work(stage: int, scope: str, usual: float, step: int, batch: int) -> None:
        end = now[stage] + float(world.at(group, scope, usual, step, call=batch)[stage])
        world.span(group, (scope,), now[stage], end, stage)
        now[stage] = end

    for step in range(world.steps):
        begins = [time + 0.2 for time in now]
        now = list(begins)
        for batch in range(batches):
            for stage in range(stages):
                if stage:
                    hand_over(stage - 1, stage)
                work(stage, "forward", 4, step, batch)
        for batch in range(batches):
            for stage in reversed(range(stages)):
                if stage < stages - 1:
                    hand_over(stage + 1, stage)
                work(stage, "backward", 6, step, batch)
        saved = world.run(group, (CHECKPOINT,), 0, step, np.array(now), works=False)
        now = saved.tolist()
        world.step(group, step, np.array(begins), saved)


def _references(world: World, _: str) -> None:
    """The driver passes each call's result to the next stage's call, and gets the last ones."""
    items, stages, now = 4, world.size("Stage"), 20.0
    free = [now] * stages
    for step in range(world.steps):
        now = _between(world, step, now)
        begin = now
        sent, keys = begin, []
        for item in range(items):
            took = world.at("Stage", "work", 6, step, call=item)
            ready, key = 0.0, []
            for stage in range(stages):
                needs, key = key, [f"ray:{step}:{item}:{stage}"]
                world.sent(DRIVER, sent, sent + 0.04, key[0], needs)
                sent += 0.05
                began = max(free[stage], ready, sent) + 0.3
                worked = began + float(took[stage])
                free[stage] = ready = worked + 0.02
                world.span("Stage", ("Stage.process", "work"), began, worked, stage)
                world.span("Stage", ("Stage.process",), began, ready, stage,
                           releases=lambda _, key=key: key)  # fmt: skip
            keys += key
        now = _got(world, "runner/process", begin, _Calls(sent, free[-1], keys))
        now = _driver_works(world, "runner/compute_rewards", 0.5, step, now)
        world.step(DRIVER, step, begin, now)
    world.span(DRIVER, ("main_loop",), 0, now)


def _one_off(world: World, _: str) -> None:
    """The driver lets rollouts of the next step run beside the training of this one."""
    now = 20.0

    def generate(step: int, now: Floats) -> Floats:
        return world.run("Rollout", ("Rollout.generate", "rollout/predict"), 20, step, now)

    def train(step: int, now: Floats) -> Floats:
        around = ("Trainer.train",)
        at = world.run("Trainer", (*around, LOAD), 0.5, step, now, works=False, waits_for="data")
        at = world.run("Trainer", (*around, "forward"), 7, step, at)
        at = world.run("Trainer", (*around, "backward"), 10, step, at)
        return _reduced(world, "Trainer", around, step, at)

    for step in range(world.steps):
        now = _between(world, step, now)
        begin = now
        rollouts = _called(world, "Rollout.generate", step, begin, generate)
        trained = _called(world, "Trainer.train", step, rollouts.sent, train)
        now = _got(world, "runner/train", begin, trained)
        now = _got(world, "runner/generate", now, rollouts)
        now = _driver_works(world, "runner/compute_rewards", 0.5, step, now)
        world.step(DRIVER, step, begin, now)
    world.span(DRIVER, ("main_loop",), 0, now)


def _pairs(world: World, _: str) -> None:
    """PPO: rollouts and environments exchange messages; learners meet; weights are handed out."""
    now = 20.0

    def train(step: int, now: Floats) -> Floats:
        around = ("ActorGroup.train",)
        load = (*around, LOAD)
        now = world.run("ActorGroup", load, 0.2, step, now, works=False, waits_for="data")
        for batch in range(3):
            for scope, usual in (("forward", 1.5), ("backward", 2.5)):
                now = world.run("ActorGroup", (*around, scope), usual, step, now, call=batch)
            now = _reduced(world, "ActorGroup", around, step, now, batch)
            now = world.run("ActorGroup", (*around, "optimizer"), 0.3, step, now, call=batch)
        return now

    def load(step: int, now: Floats) -> Floats:
        load = ("RolloutGroup.load", WEIGHTS)
        return world.run("RolloutGroup", load, 0.8, step, now, works=False)

    def sync(step: int, now: float) -> _Calls:
        """The first learner packs the weights, lets all rollouts load them, and waits for that."""
        group, key = "ActorGroup", f"ray:sync:{step}"
        world.sent(DRIVER, now, now + 0.04, key)
        begun = now + 0.34
        packed = begun + float(world.at(group, SYNC, 2, step, works=False)[0])
        calls = _called(world, "RolloutGroup.load", step, packed, load, sender=group)
        got = calls.ended + 0.1
        around = ("ActorGroup.sync", SYNC)
        world.span(group, (*around, "ray.get"), calls.sent, got, 0, "*", waits=lambda _: calls.keys)
        world.span(group, around, begun, got, 0)
        world.span(group, around[:1], begun, got + 0.02, 0, releases=lambda _: [key])
        return _Calls(now + 0.04, got + 0.02, [key])

    for step in range(world.steps):
        now = _between(world, step, now)
        begin = now
        now = _got(world, "runner/generate", begin, _exchanged(world, step, begin))
        now = _driver_works(world, "runner/compute_rewards", 0.6, step, now)
        now = _got(world, "runner/train", now, _called(world, "ActorGroup.train", step, now, train))
        now = _got(world, "runner/sync_weights", now, sync(step, now))
        world.step(DRIVER, step, begin, now)
    world.span(DRIVER, ("main_loop",), 0, now)


def _exchanged(world: World, step: int, now: float) -> _Calls:
    """Each rollout rank and its environment exchange messages."""
    called, keys = _sent(world, step, "RolloutGroup.generate", now)
    called_envs, keys_of_envs = _sent(world, step, "EnvGroup.interact", float(called[-1]))
    rollout = begun = called + 0.3 + world.at("RolloutGroup", START, 0, step, works=False)
    env = begun_env = called_envs + 0.3 + world.at("EnvGroup", START, 0, step, works=False)
    for exchange in range(6):

        def sends(name: str, exchange: int = exchange) -> Callable[[int], list[str]]:
            return lambda rank: [f"{name}:{rank}:{step}:{exchange}"]

        sent = env + 0.1
        around = ("EnvGroup.interact",)
        world.span("EnvGroup", (*around, "env/send_obs"), env, sent, releases=sends("obs"))
        received = np.maximum(rollout, sent) + 0.06
        world.span(
            "RolloutGroup", ("RolloutGroup.generate", "rollout/recv_obs"), rollout, received,
            waits_for="EnvGroup", waits=sends("obs"),
        )  # fmt: skip
        predict = ("RolloutGroup.generate", "rollout/predict")
        predicted = world.run("RolloutGroup", predict, 3, step, received, call=exchange)
        rollout = predicted + 0.08
        world.span(
            "RolloutGroup", ("RolloutGroup.generate", "rollout/send_actions"), predicted, rollout,
            releases=sends("actions"),
        )  # fmt: skip
        got = np.maximum(sent, rollout) + 0.06
        world.span(
            "EnvGroup", (*around, "env/recv_actions"), sent, got,
            waits_for="RolloutGroup", waits=sends("actions"),
        )  # fmt: skip
        env = world.run("EnvGroup", (*around, "env/step"), 3, step, got, call=exchange)
    for group, begin, end, own in (
        ("RolloutGroup", begun, rollout, keys),
        ("EnvGroup", begun_env, env, keys_of_envs),
    ):
        method = "RolloutGroup.generate" if group == "RolloutGroup" else "EnvGroup.interact"
        world.span(
            group, (method,), begin, end + 0.02,
            releases=lambda rank, own=own: own[rank : rank + 1],
        )  # fmt: skip
    ended = float(max(rollout.max(), env.max())) + 0.02
    return _Calls(float(called_envs[-1]), ended, keys + keys_of_envs)


def _chain(world: World, _: str) -> None:
    """Items go from stage to stage; messages have keys. The driver waits for the last one's."""
    items, stages, now = 4, world.size("Stage"), 20.0
    free = [now] * stages
    for step in range(world.steps):
        now = _between(world, step, now)
        begin = now
        for item in range(items):
            took = world.at("Stage", "work", 6, step, call=item)
            sent = begin + 0.1 * item
            for stage in range(stages):
                name = f"item:{step}:{item}:{stage}"
                received = max(free[stage], sent) + 0.05
                end = received + float(took[stage])
                world.span("Stage", ("recv",), free[stage], received, stage, "*",
                           waits=lambda _, name=name: [name])  # fmt: skip
                world.span("Stage", ("work",), received, end, stage)
                after = f"item:{step}:{item}:{stage + 1}"
                world.span("Stage", ("send",), end, end + 0.05, stage,
                           releases=lambda _, after=after: [after])  # fmt: skip
                sent = free[stage] = end + 0.05
        fed = begin + 0.1 * items
        for item in range(items):
            first = f"item:{step}:{item}:0"
            world.span(DRIVER, ("main_loop", "feed"), begin + 0.1 * item - 0.1, begin + 0.1 * item,
                       releases=lambda _, first=first: [first])  # fmt: skip
        last = [f"item:{step}:{item}:{stages}" for item in range(items)]
        now = max(fed, free[-1]) + 0.1
        world.span(DRIVER, ("main_loop", "collect"), fed, now, waits_for="*", waits=lambda _: last)  # noqa: B023
        now = _driver_works(world, "summarise", 0.3, step, now)
        world.step(DRIVER, step, begin - 0.1, now)
    world.span(DRIVER, ("main_loop",), 0, now)


def _parameter_server(world: World, _: str) -> None:
    """Workers send gradients to one server, which takes them one by one, and wait for weights."""
    group, ranks = "Worker", world.size("Worker")
    load = world.times(group, LOAD, 0.5, works=False)
    late = world.times(group, START, 0, works=False)
    compute = world.times(group, "compute", 20)
    service = [world.times("Server", "apply", 4 / ranks, call=rank)[:, 0] for rank in range(ranks)]
    begins, ends = np.zeros((2, world.steps, ranks))
    arrivals: list[tuple[float, int, int]] = []

    def begun(rank: int, step: int, now: float) -> None:
        begins[step, rank] = now
        loaded = now + late[step, rank] + load[step, rank]
        computed = loaded + compute[step, rank]
        world.span(group, (LOAD,), now + late[step, rank], loaded, rank, "data")
        world.span(group, ("compute",), loaded, computed, rank)
        world.span(group, ("push",), computed, computed + 0.1, rank,
                   releases=lambda _: [f"push:{rank}:{step}"])  # fmt: skip
        heapq.heappush(arrivals, (float(computed + 0.1), rank, step))

    for rank in range(ranks):
        begun(rank, 0, 20.0 + 0.3 * rank)
    free = 20.0
    while arrivals:
        sent, rank, step = heapq.heappop(arrivals)
        names = [f"push:{rank}:{step}"], [f"reply:{rank}:{step}"]
        got = max(free, sent) + 0.02
        done = got + float(service[rank][step])
        world.span("Server", ("recv_push",), free, got, 0, group, waits=lambda _, n=names: n[0])
        world.span("Server", ("apply",), got, done, 0, releases=lambda _, n=names: n[1])
        free = done
        world.span(group, ("wait_reply",), sent, done + 0.05, rank, "Server",
                   waits=lambda _, n=names: n[1])  # fmt: skip
        ends[step, rank] = done + 0.05
        if step + 1 < world.steps:
            begun(rank, step + 1, done + 0.25)
    for step in range(world.steps):
        world.step(group, step, begins[step], ends[step])


def _queue(world: World, mechanism: str) -> None:
    """Producers that run freely, and a learner that takes their items from a bounded queue."""
    producers = world.size("Actor")
    batch, bound = producers, 2 * producers
    steps = world.steps
    learn = world.times("Learner", "learn", 20)[:, 0]
    made = [0] * producers
    events: list[tuple[float, int, int, float]] = []
    blocked: deque[tuple[float, int]] = deque()
    queued: deque[tuple[int, float]] = deque()
    taken, put, step = 0, 0, 0
    ready, waiting = 20.0, True

    def produce(rank: int, now: float) -> None:
        cycle, row = divmod(made[rank], steps)
        made[rank] += 1
        end = now + float(world.times("Actor", "env/step", 17, call=cycle)[row, rank])
        world.span("Actor", ("env/step",), now, end, rank)
        heapq.heappush(events, (end, rank, 0, end))

    def insert(rank: int, since: float, now: float, freed: int | None) -> None:
        nonlocal put
        item = [f"item:{put}"]
        world.span("Actor", ("queue/put",), since, now + 0.05, rank, "Learner",
                   waits=lambda _: [] if freed is None else [f"taken:{freed}"],
                   releases=lambda _: item)  # fmt: skip
        queued.append((put, now + 0.05))
        put += 1
        produce(rank, now + 0.05)

    def take(now: float) -> float:
        nonlocal taken
        items = [queued.popleft() for _ in range(batch)]
        got = max(now, max(time for _, time in items)) + 0.05
        world.span("Learner", ("queue/get",), ready, got, 0, "Actor",
                   waits=lambda _: [f"item:{item}" for item, _ in items],
                   releases=lambda _: [f"taken:{step}"])  # fmt: skip
        taken += batch
        for _ in range(min(batch, len(blocked))):
            since, rank = blocked.popleft()
            insert(rank, since, got, step)
        end = got + float(learn[step])
        world.span("Learner", ("learn",), got, end, 0)
        world.step("Learner", step, ready, end)
        heapq.heappush(events, (end, -1, 0, end))
        return end

    for rank in range(producers):
        produce(rank, 20.0 + 0.2 * rank)
    while step < steps:
        now, rank, attempts, since = heapq.heappop(events)
        if rank < 0:
            waiting = True
        elif put - taken < bound:
            insert(rank, since, now, None)
        elif mechanism == "backpressure":  # asks again later, and then later still
            heapq.heappush(events, (now + 2.0**attempts, rank, min(attempts + 1, 6), since))
        else:
            blocked.append((since, rank))
        if waiting and len(queued) >= batch:
            waiting = False
            ready = take(max(now, ready))
            step += 1


TOPOLOGIES = {
    "fan-out": Topology(
        _fan_out, lambda ranks: {DRIVER: 1, "Trainer": ranks}, 22,
        {"Trainer": ("forward", "backward")}, (*_TRAINER_KINDS, *_CALLER_KINDS, COLLECTOR),
        mechanisms=("retries", "adaptive batches", "shared network"),
    ),
    "mixed steps": Topology(
        _mixed, lambda ranks: {DRIVER: 1, "Trainer": ranks}, 27,
        {"Trainer": ("forward", "backward")}, (*_TRAINER_KINDS, *_CALLER_KINDS, COLLECTOR),
    ),
    "data parallel": Topology(
        _data_parallel, lambda ranks: {"Rank": ranks}, 22,
        {"Rank": ("forward", "backward")}, (*_TRAINER_KINDS, "between steps", COLLECTOR),
        mechanisms=("retries", "adaptive batches", "shared network"),
    ),
    "hidden collective": Topology(
        _hidden_collective, lambda ranks: {"Rank": ranks}, 22,
        {"Rank": ("forward", "backward")}, (*_TRAINER_KINDS, "between steps"),
        hidden=("backward",), mechanisms=("host runs ahead",),
    ),
    "hidden in subgroups": Topology(
        _subgroups, lambda ranks: {"Rank": max(4, 2 * (ranks // 2))}, 22,
        {"Rank": ("forward", "backward")},
        (*_RANK_KINDS, "imbalance", "slow loader", "checkpoint", "logging"),
        hidden=("backward",),
    ),
    "stages": Topology(
        _stages, lambda ranks: {"Rank": max(8, 8 * (ranks // 8))}, 60,
        {"Rank": ("forward", "backward")}, (*_RANK_KINDS, "imbalance", "checkpoint", "logging"),
    ),
    "stages, hidden": Topology(
        _hidden_stages, lambda ranks: {"Rank": max(8, 8 * (ranks // 8))}, 60,
        {"Rank": ("forward", "backward")}, (*_RANK_KINDS, "imbalance", "checkpoint", "logging"),
        hidden=("forward", "backward"),
    ),
    "pipeline of ranks": Topology(
        _pipeline, lambda ranks: {"Rank": max(2, min(ranks, 8))}, 60,
        {"Rank": ("forward", "backward")}, ("slow rank", "pauses", "drift", "checkpoint"),
        most=64,
    ),
    "chain by references": Topology(
        _references, lambda ranks: {DRIVER: 1, "Stage": max(3, min(ranks, 12))}, 50,
        {"Stage": ("work",)}, ("slow rank", "pauses", "drift", *_DRIVER_KINDS),
        most=64,
    ),
    "one step off": Topology(
        _one_off, lambda ranks: {DRIVER: 1, "Rollout": ranks, "Trainer": max(2, ranks // 2)}, 22,
        {"Rollout": ("rollout/predict",), "Trainer": ("forward", "backward")},
        (*_RANK_KINDS, "imbalance", *_DRIVER_KINDS, COLLECTOR), most=512,
    ),
    "pairs": Topology(
        _pairs, lambda ranks: {DRIVER: 1, **dict.fromkeys(PPO, ranks)}, 58,
        {"RolloutGroup": ("rollout/predict",), "EnvGroup": ("env/step",)},
        (*_RANK_KINDS, "imbalance", "late start", *_DRIVER_KINDS, COLLECTOR, "slow sync"), most=64,
    ),
    "chain": Topology(
        _chain, lambda ranks: {DRIVER: 1, "Stage": max(3, min(ranks, 12))}, 50,
        {"Stage": ("work",)}, ("slow rank", "pauses", "drift", "slow everywhere", "between steps"),
        most=64,
    ),
    "parameter server": Topology(
        _parameter_server, lambda ranks: {"Worker": ranks, "Server": 1}, 21,
        {"Worker": ("compute",)}, (*_RANK_KINDS, "slow loader", "late start", "slow server"),
        most=64, server=("Server", "apply"),
    ),
    "queue": Topology(
        _queue, lambda ranks: {"Actor": ranks, "Learner": 1}, 21,
        {"Actor": ("env/step",)}, ("slow rank", "two slow ranks", "slow everywhere", "pauses",
        "slow server"), mechanisms=("backpressure",), most=64, server=("Learner", "learn"),
    ),
}  # fmt: skip

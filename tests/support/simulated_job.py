"""A simulated PPO job on Ray, whose causes of slow steps are planted, as real ledgers.

A driver calls rollout and environment workers in pairs that send each other messages, then a group
of learners that meet in an all-reduce, then hands out the weights. Times vary as real ones do: from
step to step with a memory, from call to call, and with a long tail.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
from gpuprof._analysis.causes import Finding

from support.simulated_run import SimulatedLedger, write_run

MS = 1_000_000
CAUSES = (
    "slow rank",
    "slow node",
    "slow environment",
    "serial driver",
    "data stall",
    "late start",
    "slow weight sync",
    "pauses",
    "garbage collection",
)
PAUSES = ("pauses", "garbage collection")
"""Causes that stop a worker in some steps: its ledger has those of the garbage collector only."""
EXPECTED = {
    "slow rank": ("rank", "RolloutGroup-1", "rollout/predict"),
    "slow node": ("node", "node-1", ""),
    "slow environment": ("rank", "EnvGroup-1", "env/step"),
    "serial driver": ("driver", "Runner", "runner/compute_rewards"),
    "data stall": ("data", "ActorGroup", "actor/next_batch"),
    "late start": ("late start", "RolloutGroup-1", "(before its first scope)"),
    "slow weight sync": ("synchronisation", "ActorGroup-0", "actor/sync_model_to_rollout"),
    "pauses": ("pauses", "EnvGroup-1", "env/step"),
    "garbage collection": ("garbage collection", "EnvGroup-1", "env/step"),
}
"""What explain is to find: cause, worker, node or group, and scope (any, where empty)."""
SLOW = (
    ("slow rank", "RolloutGroup-1", "rollout/predict"),
    ("slow environment", "EnvGroup-1", "env/step"),
)
"""Causes that are a worker's slowness in a scope."""


def found_as_planted(cause: str, finding: Finding) -> bool:
    """Whether a finding names the cause that was planted, with its worker and scope.

    Many pauses are a slow rank, too.
    """
    kind, worker, scope = EXPECTED[cause]
    return (
        finding.cause in (kind, "rank" if kind == "pauses" else kind)
        and worker in (finding.worker, finding.group)
        and scope in ("", finding.scope)
    )


@attrs.define
class Job:
    """A run to simulate.

    Args:
        cause: one of `CAUSES`; ``None``: nothing is planted.
        seed: of all that varies.
        ranks: of each group.
        steps: how many.
        exchanges: messages that a pair exchanges in a step.
        keys: whether calls and messages have keys.
    """

    cause: str | None
    seed: int
    ranks: int = 2
    steps: int = 40
    exchanges: int = 6
    keys: bool = True

    def write(self, directory: Path) -> Path:
        """Simulate the run, and write its ledgers. Returns the directory."""
        return write_run(directory, _Simulation(self).run())


class _Simulation:
    def __init__(self, job: Job) -> None:
        self.job = job
        # what is planted must not change what else happens
        self.random = np.random.default_rng([job.seed, job.ranks])
        self.pauses = np.random.default_rng([job.seed, job.ranks, 7])
        self.scale = float(self.random.uniform(0.5, 2.0))
        self.memory = 0.0
        self.step_factor = 1.0
        self.driver = SimulatedLedger("Runner", "driver")
        half = job.ranks // 2
        nodes = [f"node-{int(rank >= half)}" for rank in range(job.ranks)]
        self.workers = {
            group: [
                SimulatedLedger(f"{group}-{rank}", node=nodes[rank]) for rank in range(job.ranks)
            ]
            for group in ("RolloutGroup", "EnvGroup", "ActorGroup")
        }
        self.now = 0
        self.calls = 0

    def run(self) -> list[SimulatedLedger]:
        self.now = 20 * MS
        for step in range(self.job.steps):
            self.memory = 0.6 * self.memory + float(self.random.normal(0, 0.04))
            self.step_factor = max(0.5, 1 + self.memory) * (2.5 if step == 0 else 1.0)
            begin = self.now
            self._generate(step)
            self._compute_rewards()
            self._train(step)
            self._sync(step)
            self.driver.step(step, begin, self.now)
            self.now += int(0.2 * MS)
        self.driver.span("main_loop", 0, self.now)
        return [self.driver, *(each for group in self.workers.values() for each in group)]

    def took(
        self, milliseconds: float, worker: SimulatedLedger | None = None, scope: str = ""
    ) -> int:
        """Nanoseconds of something that usually takes so long."""
        call = float(self.random.lognormal(0, 0.07))
        if self.random.random() < 0.01:  # another process on the core
            call += float(self.random.exponential(0.5))
        name = worker.name if worker else ""
        node = worker.node if worker else ""
        cause = self.job.cause
        if (cause, name, scope) in SLOW:
            call *= 1.6
        elif cause == "slow node" and node == "node-1":
            call *= 1.4
        elif cause == "data stall" and scope == "actor/next_batch":
            call *= 60
        elif cause == "slow weight sync" and scope == "actor/sync_model_to_rollout":
            call *= 8
        return int(milliseconds * MS * self.scale * self.step_factor * call)

    def call_key(self) -> list[str]:
        self.calls += 1
        return [f"ray:{self.calls}"] if self.job.keys else []

    def key(self, *parts: object) -> list[str]:
        return [":".join(map(str, parts))] if self.job.keys else []

    def _get(self, scope: str, begin: int, keys: list[str], end: int) -> None:
        """The driver's scope around its wait for calls."""
        got = end + int(0.1 * MS)
        self.driver.span(("main_loop", scope), begin, got + 20_000)
        inner = begin + 50_000
        self.driver.span(("main_loop", scope, "ray.get"), inner, got, waits_for="*", waits=keys)
        self.now = got + 30_000

    def _generate(self, step: int) -> None:
        begin = self.now
        keys, ends = [], []
        paused = self.pauses.random() < 0.35 if self.job.cause in PAUSES else False
        at = int(self.pauses.integers(self.job.exchanges))
        for rank in range(self.job.ranks):
            rollout, env = self.workers["RolloutGroup"][rank], self.workers["EnvGroup"][rank]
            called = begin + 300_000 + 40_000 * rank
            late = self.job.cause == "late start" and rank == 1
            r = called + (int(12 * MS * self.scale) if late else 0)
            e = called + 30_000
            rollout_began, env_began = r, e
            for exchange in range(self.job.exchanges):
                name = (rank, step, exchange)
                sent = e + 100_000
                env.span(
                    ("EnvWorker.interact", "env/interact", "env/send_obs"), e, sent,
                    releases=self.key("obs", *name),
                )  # fmt: skip
                received = max(r, sent) + 60_000
                rollout.span(
                    ("RolloutWorker.generate", "rollout/generate", "rollout/recv_obs"), r, received,
                    waits_for="EnvGroup", waits=self.key("obs", *name),
                )  # fmt: skip
                r = received + self.took(3.0, rollout, "rollout/predict")
                rollout.span(
                    ("RolloutWorker.generate", "rollout/generate", "rollout/predict"), received, r
                )
                done = r + 80_000
                rollout.span(
                    ("RolloutWorker.generate", "rollout/generate", "rollout/send_actions"), r, done,
                    releases=self.key("actions", *name),
                )  # fmt: skip
                r = done
                got = max(sent, done) + 60_000
                env.span(
                    ("EnvWorker.interact", "env/interact", "env/recv_actions"), sent, got,
                    waits_for="RolloutGroup", waits=self.key("actions", *name),
                )  # fmt: skip
                e = got + self.took(3.0, env, "env/step")
                if paused and rank == 1 and exchange == at:
                    worked, e = e, e + int(30 * MS * self.scale)
                    if self.job.cause == "garbage collection":
                        env.collections.append((2, worked, e))
                env.span(("EnvWorker.interact", "env/interact", "env/step"), got, e)
            for ledger, method, inner, first, last in (
                (rollout, "RolloutWorker.generate", "rollout/generate", rollout_began, r),
                (env, "EnvWorker.interact", "env/interact", env_began, e),
            ):
                key = self.call_key()
                ledger.span((method, inner), first, last)
                ledger.span(method, first, last + 20_000, releases=key)
                keys += key
                ends.append(last + 20_000)
        self._get("runner/generate", begin, keys, max(ends))

    def _compute_rewards(self) -> None:
        usual = 18.0 if self.job.cause == "serial driver" else 0.6
        end = self.now + self.took(usual)
        self.driver.span(("main_loop", "runner/compute_rewards"), self.now, end)
        self.now = end

    def _train(self, step: int) -> None:
        begin = self.now
        learners = self.workers["ActorGroup"]
        times = [begin + 300_000 + 40_000 * rank for rank in range(len(learners))]
        began = list(times)
        around = ("Learner.train", "actor/run_training")
        for rank, learner in enumerate(learners):
            end = times[rank] + self.took(0.2, learner, "actor/next_batch")
            learner.span((*around, "actor/next_batch"), times[rank], end, waits_for="data")
            times[rank] = end
        for batch in range(3):
            entered = []
            for rank, learner in enumerate(learners):
                for scope, usual in (("forward", 1.5), ("backward", 2.5)):
                    end = times[rank] + self.took(usual, learner, scope)
                    learner.span((*around, scope), times[rank], end)
                    times[rank] = end
                entered.append(times[rank])
            out = max(entered) + self.took(0.4)
            for rank, learner in enumerate(learners):
                learner.span(
                    (*around, "all_reduce"), entered[rank], out,
                    waits_for="barrier", meets=self.key("dist", step, batch),
                )  # fmt: skip
                times[rank] = out + self.took(0.3, learner, "optimizer")
                learner.span((*around, "optimizer"), out, times[rank])
        keys = []
        for rank, learner in enumerate(learners):
            key = self.call_key()
            learner.span(around, began[rank], times[rank])
            learner.span(around[0], began[rank], times[rank] + 20_000, releases=key)
            keys += key
        self._get("runner/train", begin, keys, max(times) + 20_000)

    def _sync(self, step: int) -> None:
        begin = self.now
        learner = self.workers["ActorGroup"][0]
        first = begin + 300_000
        around = ("Learner.sync", "actor/sync_model_to_rollout")
        packed = first + self.took(2.0, learner, around[1])
        keys, ends = [], []
        for rank, rollout in enumerate(self.workers["RolloutGroup"]):
            start = packed + 300_000 + 40_000 * rank
            end = start + self.took(0.8, rollout, "rollout/load_weights")
            key = self.call_key()
            rollout.span(("RolloutWorker.load", "rollout/load_weights"), start, end)
            rollout.span("RolloutWorker.load", start, end + 20_000, releases=key)
            keys += key
            ends.append(end + 20_000)
        got = max(ends) + int(0.1 * MS)
        learner.span((*around, "ray.get"), packed, got, waits_for="*", waits=keys)
        learner.span(around, first, got)
        key = self.call_key()
        learner.span(around[0], first, got + 20_000, releases=key)
        self._get("runner/sync_weights", begin, key, got + 20_000)

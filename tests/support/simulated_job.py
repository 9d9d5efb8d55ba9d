"""A PPO job on Ray, whose causes of slow steps are planted: one of the jobs of `truth`."""

from __future__ import annotations

from pathlib import Path

import attrs
from gpuprof._analysis.explain import Finding
from truth import jobs
from truth.causes import COLLECTOR, START, Cause
from truth.topologies import LOAD, PPO, SYNC, TOPOLOGIES
from truth.world import DRIVER, Machine

_STEP = TOPOLOGIES["pairs"].step
_PLANTED = {
    "slow rank": Cause("slow rank", PPO[0], (1,), "rollout/predict", 0.6),
    "slow node": Cause("slow node", "", size=0.4, node="node-1"),
    "slow environment": Cause("slow rank", PPO[1], (1,), "env/step", 0.6),
    "serial driver": Cause("serial driver", DRIVER, (0,), "runner/compute_rewards", 0.285, _STEP),
    "data stall": Cause("slow loader everywhere", PPO[2], (), LOAD, 0.2, _STEP),
    "late start": Cause("late start", PPO[0], (1,), START, 0.2, _STEP),
    "slow weight sync": Cause("slow sync", PPO[2], (0,), SYNC, 0.25, _STEP),
    "pauses": Cause("pauses", PPO[1], (1,), "env/step", 0.2, _STEP),
    COLLECTOR: Cause(COLLECTOR, PPO[1], (1,), "env/step", 0.35, _STEP),
}
CAUSES = tuple(_PLANTED)
EXPECTED = {
    "slow rank": ("rank", "RolloutGroup-1", "rollout/predict"),
    "slow node": ("node", "node-1", ""),
    "slow environment": ("rank", "EnvGroup-1", "env/step"),
    "serial driver": ("driver", "Runner", "runner/compute_rewards"),
    "data stall": ("data", "ActorGroup", LOAD),
    "late start": ("late start", "RolloutGroup-1", "(before its first scope)"),
    "slow weight sync": ("synchronisation", "ActorGroup-0", "actor/sync_model_to_rollout"),
    "pauses": ("pauses", "EnvGroup-1", "env/step"),
    COLLECTOR: ("garbage collection", "EnvGroup-1", "env/step"),
}
"""What explain is to find: cause, worker, node or group, and scope (any, where empty)."""


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
        keys: whether calls and messages have keys.
    """

    cause: str | None
    seed: int
    ranks: int = 2
    steps: int = 40
    keys: bool = True

    def write(self, directory: Path) -> Path:
        """Simulate the run, and write its ledgers. Returns the directory."""
        groups = TOPOLOGIES["pairs"].groups(self.ranks)
        machine = Machine(self.seed, self.steps, groups, max(1, self.ranks // 2), "log-normal 5 %")
        causes = (_PLANTED[self.cause],) if self.cause else ()
        job = jobs.Job("PPO", "pairs", machine, causes=causes)
        return attrs.evolve(job, record="full" if self.keys else "no keys").write(directory)

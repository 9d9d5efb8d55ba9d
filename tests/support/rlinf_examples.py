"""RLinf's settings as its page documents them, for the tests of their reader."""

from __future__ import annotations

from typing import Any

from support.planning import parsed, planned

GROUPS = {name: {"count": 2, "gpus": 1} for name in ("ActorGroup", "RolloutGroup", "EnvGroup")}
CHANNELS = {name: {"gpus": 0} for name in ("Actor", "Rollout", "Env")}
WORKERS = {**GROUPS, **CHANNELS}

PRESET = """
backend: nsight
enabled: true
worker_groups: [ActorGroup, RolloutGroup, EnvGroup, Actor, Rollout, Env]
options:
  t: cuda,cudnn,cublas,nvtx,osrt
  sample: process-tree
  cpuctxsw: process-tree
  cudabacktrace: all
  osrt-threshold: 1000
flags: []
"""


def settings(text: str, **more: Any) -> dict[str, Any]:
    """The section `cluster.profiling`, selecting a group, in a whole configuration."""
    logger = {"log_path": "../results", "experiment_name": "libero_spatial_ppo_openpi"}
    section = {"worker_groups": ["ActorGroup"], **parsed(text), **more}
    return {"runner": {"logger": logger}, "cluster": {"num_nodes": 1, "profiling": section}}


def command(text: str, **more: Any) -> list[str]:
    """The command of the first actor, but for the tool and what gpuprof adds at the end."""
    words = list(planned("rlinf", settings(text, **more), WORKERS, "ActorGroup-0").command)
    return words[2 : words.index("--wait=primary")]

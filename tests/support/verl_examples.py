"""Examples of verl's pages, from the oldest spelling on, and the workers of such a job."""

from __future__ import annotations

WORKERS = {
    "controller": {"gpus": 0},
    **{
        name: {"count": 3, "gpus": 1}
        for name in ("actor_rollout_ref", "critic", "reward_model", "WorkerDict")
    },
}

OLDEST = """
trainer:
    profile_steps: [1, 2, 5]
actor_rollout_ref:
    actor:
        profile_discrete: False
        profile_ranks: [0, 1]
    rollout:
        profile_discrete: False
        profile_ranks: null
    ref:
        profile_discrete: False
critic:
    profile_discrete: False
    profile_ranks: [0]
"""
OLD = """
trainer:
    profile_steps: [1, 2, 5]
actor_rollout_ref:
    actor:
        profiler: {discrete: False, all_ranks: False, ranks: [0, 1]}
    rollout:
        profiler: {discrete: False, all_ranks: False, ranks: [0, 1]}
    ref:
        profiler: {discrete: False, all_ranks: False, ranks: [0, 1]}
critic:
    profiler: {discrete: False, all_ranks: False, ranks: [0, 1]}
"""
SHORT = """
global_profiler:
    steps: [1, 2, 5]
    discrete: False
actor_rollout_ref:
    actor:
        profiler: {enable: True, all_ranks: True}
critic:
    profiler: {enable: True, all_ranks: True}
reward_model:
    profiler: {enable: True, all_ranks: True}
"""

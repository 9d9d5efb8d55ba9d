"""The workers of `EnvGroup`: each steps several environments for a rollout worker."""

from __future__ import annotations

import asyncio
from typing import Any

import gpuprof
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from settings import Settings
from trajectory import Part, stack


class EnvWorker:
    """Steps several copies of the environment together.

    Episodes go on from one training step to the next.

    Args:
        settings: the hyperparameters.
        rank: the position among the environment workers.
    """

    def __init__(self, settings: Settings, rank: int) -> None:
        self._settings = settings
        self._rank = rank
        self._environments = gymnasium.make_vec(
            settings.environment,
            num_envs=settings.environments,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )
        self._observations: np.ndarray | None = None
        self._returns = np.zeros(settings.environments)
        self._finished: list[float] = []
        self._inbox: asyncio.Queue[np.ndarray] = asyncio.Queue()
        self._sent = self._received = 0

    async def put_actions(self, actions: np.ndarray) -> None:
        """Take a message of the rollout worker."""
        self._inbox.put_nowait(actions)

    @gpuprof.timer("env/interact")
    async def interact(self, rollout: Any, learner: Any) -> list[float]:
        """Step the environments for one training step as the rollout worker says.

        Returns the returns of finished episodes.
        """
        if self._observations is None:
            self._bootstrap_step()
        for epoch in range(self._settings.rollout_epochs):
            moments = [await self._interact_once(rollout) for _ in range(self._settings.horizon)]
            await self._send_rollout_trajectories(learner, epoch, moments)
        finished, self._finished = self._finished, []
        return finished

    @gpuprof.timer("env/bootstrap_step")
    def _bootstrap_step(self) -> None:
        # Far enough from each other that no two environments of the job have the same seed.
        self._observations, _ = self._environments.reset(
            seed=self._settings.seed + 1000 * self._rank
        )

    @gpuprof.timer("env/interact_once")
    async def _interact_once(self, rollout: Any) -> Part:
        self._send_obs(rollout)
        return self._step(await self._recv_actions())

    # Both sides number the messages, so that a wait is known to end with this very message.
    @gpuprof.timer("env/send_obs", key=lambda self, _: f"obs:{self._rank}:{self._sent}")
    def _send_obs(self, rollout: Any) -> None:
        self._sent += 1
        rollout.put_observations.remote(self._observations)

    @gpuprof.timer(
        "env/recv_actions",
        waits_for="RolloutGroup",
        key=lambda self: f"actions:{self._rank}:{self._received}",
    )
    async def _recv_actions(self) -> np.ndarray:
        self._received += 1
        return await self._inbox.get()

    @gpuprof.timer("env/step")
    def _step(self, actions: np.ndarray) -> Part:
        self._observations, rewards, terminations, truncations, info = self._environments.step(
            actions
        )
        ends = terminations | truncations
        # Where an episode ended, the observations are already those of the next one.
        successors = self._observations.copy()
        for position in np.flatnonzero(ends):
            successors[position] = info["final_obs"][position]
        self._returns += rewards
        self._finished += self._returns[ends].tolist()
        self._returns[ends] = 0.0
        numbers = {"rewards": rewards, "terminations": terminations, "ends": ends}
        return {
            "successors": successors,
            **{key: values.astype(np.float32) for key, values in numbers.items()},
        }

    @gpuprof.timer("env/send_rollout_trajectories")
    async def _send_rollout_trajectories(
        self, learner: Any, epoch: int, moments: list[Part]
    ) -> None:
        await learner.put_part.remote(self._rank, epoch, stack(moments))

"""The workers of `RolloutGroup`: each chooses the actions for one environment worker.

The two of a pair run their loops at the same time and send each other messages, which wait in an
inbox. What they are given of each other is a handle, spelt as Ray spells it: `await
handle.method.remote(...)`. Who launches them decides what is behind it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import gpuprof
import numpy as np
import torch
from ppo import Policy
from settings import Settings
from trajectory import Part, stack


class RolloutWorker:
    """Chooses actions for the environments of one environment worker.

    Args:
        settings: the hyperparameters.
        rank: the position among the rollout workers.
    """

    def __init__(self, settings: Settings, rank: int) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._rank = rank
        self._policy = Policy(settings)
        self._weights: Part | None = None
        self._random = torch.Generator().manual_seed(settings.seed + 1 + rank)
        self._inbox: asyncio.Queue[np.ndarray] = asyncio.Queue()
        self._sent = self._received = 0

    async def put_observations(self, observations: np.ndarray) -> None:
        """Take a message of the environment worker."""
        self._inbox.put_nowait(observations)

    @gpuprof.timer("rollout/request_weight_sync")
    async def request_weight_sync(self, weights: Part) -> None:
        """Take another policy, to go on with from the next trajectory on."""
        self._weights = weights

    @gpuprof.timer("rollout/generate")
    async def generate(self, environment: Any, learner: Any) -> None:
        """Serve the environment worker for one training step and feed the learner."""
        for epoch in range(self._settings.rollout_epochs):
            self._poll_weight_sync()
            await self._generate_epoch(environment, learner, epoch)

    @gpuprof.timer("rollout/poll_weight_sync")
    def _poll_weight_sync(self) -> None:
        weights, self._weights = self._weights, None
        if weights is not None:
            self._policy.load_state_dict(
                {name: torch.tensor(values) for name, values in weights.items()}
            )

    @gpuprof.timer("rollout/generate_epoch")
    async def _generate_epoch(self, environment: Any, learner: Any, epoch: int) -> None:
        moments = []
        for _ in range(self._settings.horizon):
            observations = await self._recv_obs()
            moments.append(self._predict(observations))
            self._send_actions(environment, moments[-1]["actions"])
        await self._send_traj(learner, epoch, moments)

    @gpuprof.timer(
        "rollout/recv_obs",
        waits_for="EnvGroup",
        key=lambda self: f"obs:{self._rank}:{self._received}",
    )
    async def _recv_obs(self) -> np.ndarray:
        self._received += 1
        return await self._inbox.get()

    @gpuprof.timer("rollout/predict")
    @torch.no_grad()
    def _predict(self, observations: np.ndarray) -> Part:
        distribution = self._policy.distribution(torch.tensor(observations))
        actions = torch.multinomial(distribution.probs, 1, generator=self._random).squeeze(-1)
        log_probabilities = distribution.log_prob(actions)
        return {
            "observations": observations,
            "actions": actions.numpy(),
            "log_probabilities": log_probabilities.numpy(),
        }

    @gpuprof.timer(
        "rollout/send_actions", key=lambda self, *_: f"actions:{self._rank}:{self._sent}"
    )
    def _send_actions(self, environment: Any, actions: np.ndarray) -> None:
        self._sent += 1
        # Not awaited: the answer is a message too. Should the other worker have died, the runner
        # hears of it.
        environment.put_actions.remote(actions)

    @gpuprof.timer("rollout/send_traj")
    async def _send_traj(self, learner: Any, epoch: int, moments: list[Part]) -> None:
        # Awaited: the learner may begin as soon as this method has ended.
        await learner.put_part.remote(self._rank, epoch, stack(moments))

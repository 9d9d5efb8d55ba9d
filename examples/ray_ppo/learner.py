"""The worker of `ActorGroup`: learns from the trajectories of all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpuprof
import numpy as np
import torch
from ppo import Batch, Policy, add_advantages, loss
from settings import Settings
from trajectory import Part


class Learner:
    """Improves the policy.

    Args:
        settings: the hyperparameters.
        wait: turns references of remote calls into their results.
    """

    def __init__(self, settings: Settings, wait: Callable[[list[Any]], list[Any]]) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._wait = wait
        self._policy = Policy(settings)
        self._optimizer = torch.optim.Adam(
            self._policy.parameters(), lr=settings.learning_rate, eps=1e-5
        )
        self._random = torch.Generator().manual_seed(settings.seed)
        self._inbox: dict[tuple[int, int], Part] = {}

    def put_part(self, rank: int, epoch: int, part: Part) -> None:
        """Take one worker's part of a trajectory. The other part has the same rank and epoch."""
        self._inbox.setdefault((rank, epoch), {}).update(part)

    def train(self) -> None:
        """Learn from all trajectories that have arrived."""
        batch = self._recv_traj()
        self._compute_adv(batch)
        self._run_training({key: values.flatten(0, 1) for key, values in batch.items()})

    @gpuprof.timer("actor/recv_traj")
    def _recv_traj(self) -> Batch:
        # Sorted: what is learnt must not depend on who was faster.
        trajectories = [self._inbox.pop(key) for key in sorted(self._inbox)]
        return {
            key: torch.tensor(np.concatenate([part[key] for part in trajectories], axis=1))
            for key in trajectories[0]
        }

    @gpuprof.timer("actor/compute_adv")
    def _compute_adv(self, batch: Batch) -> None:
        add_advantages(self._policy, batch, self._settings)

    @gpuprof.timer("actor/run_training")
    def _run_training(self, batch: Batch) -> None:
        timing = gpuprof.timing()
        for epoch in range(self._settings.learning_epochs):
            # In the timeline one wants to see where an epoch begins; in the tree it would say
            # nothing.
            with gpuprof.annotate(f"epoch-{epoch}"):
                order = torch.randperm(len(batch["actions"]), generator=self._random)
                for chosen in order.split(self._settings.minibatch_size):
                    with timing.add_time("losses"):
                        value = loss(
                            self._policy,
                            {key: values[chosen] for key, values in batch.items()},
                            self._settings,
                        )
                    with timing.add_time("backward"):
                        self._optimizer.zero_grad()
                        value.backward()
                    with timing.add_time("optimizer"):
                        torch.nn.utils.clip_grad_norm_(
                            self._policy.parameters(), self._settings.gradient_norm
                        )
                        self._optimizer.step()

    @gpuprof.timer("actor/sync_model_to_rollout")
    def sync_model_to_rollout(self, rollouts: list[Any]) -> None:
        """Hand the weights to the rollout workers, and wait until they have them."""
        weights = {name: values.numpy() for name, values in self._policy.state_dict().items()}
        self._wait([rollout.request_weight_sync.remote(weights) for rollout in rollouts])

"""Proximal policy optimization in plain torch: the networks, the advantages and the loss.

Knows nothing of processes.
"""

from __future__ import annotations

from typing import TypeAlias

import gymnasium
import torch
from gymnasium.spaces import flatdim
from settings import Settings
from torch import Tensor, nn
from torch.distributions import Categorical

Batch: TypeAlias = dict[str, Tensor]


class Policy(nn.Module):
    """Two separate networks: one scores the actions, one estimates the return.

    Args:
        settings: names the environment, the width and the seed. The same seed gives the same
            weights in every process.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        environment = gymnasium.make(settings.environment)
        observation_size = flatdim(environment.observation_space)
        action_count = flatdim(environment.action_space)
        environment.close()
        random = torch.Generator().manual_seed(settings.seed)
        # A policy whose scores begin near zero tries all actions; the usual gain of the value is
        # one.
        self.scores = _network(observation_size, settings.hidden_size, action_count, 0.01, random)
        self.value = _network(observation_size, settings.hidden_size, 1, 1.0, random)

    def distribution(self, observations: Tensor) -> Categorical:
        """The probability of each action."""
        return Categorical(logits=self.scores(observations))

    def values(self, observations: Tensor) -> Tensor:
        """The estimated return from each observation on."""
        return self.value(observations).squeeze(-1)


def _network(
    inputs: int, width: int, outputs: int, last_gain: float, random: torch.Generator
) -> nn.Sequential:
    layers = [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain, generator=random)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


@torch.no_grad()
def add_advantages(policy: Policy, batch: Batch, settings: Settings) -> None:
    """Add `advantages` and `returns` to a batch of shape (time, environment).

    The value of a successor counts unless the episode terminated there; the trace ends wherever the
    episode ended, for whatever reason. So an episode that ran into its time limit is not mistaken
    for a failure.
    """
    values = policy.values(batch["observations"])
    successor_values = policy.values(batch["successors"]) * (1.0 - batch["terminations"])
    surprises = batch["rewards"] + settings.discount * successor_values - values
    decay = settings.discount * settings.trace_decay * (1.0 - batch["ends"])
    advantages = torch.empty_like(values)
    following = torch.zeros_like(values[0])
    for time in reversed(range(len(values))):
        following = surprises[time] + decay[time] * following
        advantages[time] = following
    batch["advantages"] = advantages
    batch["returns"] = advantages + values


def loss(policy: Policy, batch: Batch, settings: Settings) -> Tensor:
    """The whole loss over a batch whose first dimension is the sample."""
    distribution = policy.distribution(batch["observations"])
    ratio = (distribution.log_prob(batch["actions"]) - batch["log_probabilities"]).exp()
    advantages = batch["advantages"]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    clipped = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
    policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
    value_loss = (policy.values(batch["observations"]) - batch["returns"]).square().mean()
    return (
        policy_loss
        + settings.value_weight * value_loss
        - settings.entropy_weight * distribution.entropy().mean()
    )

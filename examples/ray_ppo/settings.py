"""The hyperparameters, as the configuration file gives them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The section `training` of the configuration, which explains each key."""

    environment: str
    seed: int
    steps: int
    workers: int
    environments: int
    rollout_epochs: int
    horizon: int
    hidden_size: int
    learning_rate: float
    learning_epochs: int
    minibatch_size: int
    discount: float
    trace_decay: float
    clip: float
    value_weight: float
    entropy_weight: float
    gradient_norm: float
    report_episodes: int
    report_every: int

    @property
    def frames_per_step(self) -> int:
        """How often an environment is stepped in one training step, over all its copies."""
        return self.workers * self.environments * self.rollout_epochs * self.horizon

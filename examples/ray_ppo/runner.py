"""The training loop.

It does not know whether its workers are Ray actors or objects of this process.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Protocol

import gpuprof
from env_worker import EnvWorker
from learner import Learner
from rollout_worker import RolloutWorker
from settings import Settings

log = logging.getLogger("ray_ppo")


class Launch(Protocol):
    """A way to run the workers."""

    def start(self, worker: type, group: str, rank: int, *arguments: Any) -> Any:
        """Start a worker, and return a handle of it."""

    def wait_until_started(self, handles: list[Any]) -> None:
        """Return when all of these workers can be called without delay."""

    def wait(self, references: list[Any]) -> list[Any]:
        """The results of remote calls, once all have ended.

        If one fails, the others are cancelled.
        """

    def step(self, number: int, frames: int) -> AbstractContextManager[object]:
        """What a training step runs in, in which an environment is stepped so often."""


class Runner:
    """Starts the workers and takes them through the training.

    Args:
        settings: the hyperparameters.
        launch: how to run the workers.
    """

    def __init__(self, settings: Settings, launch: Launch) -> None:
        self._settings = settings
        self._launch = launch
        ranks = range(settings.workers)
        with gpuprof.timer("runner/start_workers"):
            self._learner = launch.start(Learner, "ActorGroup", 0, settings, launch.wait)
            self._rollouts = [
                launch.start(RolloutWorker, "RolloutGroup", rank, settings, rank) for rank in ranks
            ]
            self._environments = [
                launch.start(EnvWorker, "EnvGroup", rank, settings, rank) for rank in ranks
            ]
            launch.wait_until_started([self._learner, *self._rollouts, *self._environments])
        self._returns: deque[float] = deque(maxlen=settings.report_episodes)

    def run(self) -> float:
        """Train for as many steps as the settings say. Returns the last episodes' mean return."""
        frames = 0
        for step in range(self._settings.steps):
            with self._launch.step(step, frames=self._settings.frames_per_step):
                self._generate()
                self._train()
                self._sync_weights()
            frames += self._settings.frames_per_step
            if (step + 1) % self._settings.report_every == 0 or step + 1 == self._settings.steps:
                log.info("step %d: %d frames, mean return %.1f", step, frames, self._mean_return)
        return self._mean_return

    @property
    def _mean_return(self) -> float:
        return sum(self._returns) / len(self._returns) if self._returns else float("nan")

    @gpuprof.timer("runner/generate")
    def _generate(self) -> None:
        generating, interacting = [], []
        for rollout, environment in zip(self._rollouts, self._environments, strict=True):
            generating.append(rollout.generate.remote(environment, self._learner))
            interacting.append(environment.interact.remote(rollout, self._learner))
        # One wait for both: if one of a pair fails, the other would for ever wait for its message.
        results = self._launch.wait(generating + interacting)
        for returns in results[len(generating) :]:
            self._returns.extend(returns)

    @gpuprof.timer("runner/train")
    def _train(self) -> None:
        self._launch.wait([self._learner.train.remote()])

    @gpuprof.timer("runner/sync_weights")
    def _sync_weights(self) -> None:
        self._launch.wait([self._learner.sync_model_to_rollout.remote(self._rollouts)])

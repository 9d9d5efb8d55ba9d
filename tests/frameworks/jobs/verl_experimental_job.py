"""Two jobs of verl on CPUs, one after the other: one step off policy, then fully asynchronous."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import ray
import verl.trainer.main_ppo
from omegaconf import OmegaConf
from verl.trainer.main_ppo import run_ppo
from verl_trainers import FullyAsync, OneStepOff

ASYNCHRONOUS = {
    "async_training": {
        "trigger_parameter_sync_step": 2,
        "require_batches": 1,
        "use_trainer_do_validate": False,
    },
    "rollout": {"nnodes": 1, "n_gpus_per_node": 1},
    "actor_rollout_ref": {"hybrid_engine": False},
    "critic": {"enable": False},
    "algorithm": {"adv_estimator": "grpo"},
    "trainer": {"logger": ["console"], "val_before_train": False, "save_freq": -1},
}


@ray.remote
class OneStepOffTaskRunner:
    """The trainer runs here."""

    def run(self, config: Any) -> None:
        trainer = OneStepOff(config, None, {}, None, device_name="cpu")
        trainer.init_workers()
        asyncio.run(trainer.fit())


@ray.remote
class FullyAsyncTaskRunner:
    """The trainer is an actor that this one makes, as in verl's own."""

    def run(self, config: Any) -> None:
        trainer = ray.remote(FullyAsync).remote(config, None, {}, None, device_name="cpu")
        ray.get(trainer.init_workers.remote())
        ray.get(trainer.fit.remote())


def main() -> None:
    settings = Path(verl.trainer.main_ppo.__file__).parent / "config/_generated_ppo_trainer.yaml"
    config = OmegaConf.merge(
        OmegaConf.load(settings), ASYNCHRONOUS, OmegaConf.from_dotlist(sys.argv[1:])
    )
    for runner in (OneStepOffTaskRunner, FullyAsyncTaskRunner):
        run_ppo(config, task_runner_class=runner)


if __name__ == "__main__":
    main()

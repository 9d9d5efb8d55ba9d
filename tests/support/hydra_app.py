"""A program like those of RLinf's users: Hydra composes, gpuprof prints the plan."""

from __future__ import annotations

import json

import gpuprof
import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path="hydra_conf", config_name="app")
def main(config: DictConfig) -> None:
    """Plan both workers, from the whole configuration and as RLinf reads it."""
    workers = {"ActorGroup": {"gpus": 1}, "Critic": {"gpus": 1}}
    plans = [gpuprof.plan(config, workers), gpuprof.plan(config, workers, system="rlinf")]
    print(json.dumps([plan.to_dict() for plan in plans]))  # noqa: T201


if __name__ == "__main__":
    main()

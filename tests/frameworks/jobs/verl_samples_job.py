"""Ten steps of verl's agent loop: its manager, two of its workers, its client and its tools.

Only the inference server and the reward are stand-ins. Nothing here knows gpuprof. Writes the
tokens of each step as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
import verl.trainer.main_ppo
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopManager
from verl.trainer.main_ppo import run_ppo
from verl.trainer.ppo.v1.trainer_base import KVBatchMeta
from verl.utils.config import validate_config
from verl.utils.profiler import marked_timer
from verl.workers.rollout.llm_server import GlobalRequestLoadBalancer, LLMServerClient
from verl_job import ON_CPUS
from verl_job import Trainer as SimpleTrainer
from verl_stand_in import StandInActors, StandInReward, StandInServer, save_model

SAMPLES = 64
STEPS = 10


class Trainer(SimpleTrainer):
    """verl's trainer, whose step is a rollout and nothing else."""

    def init_workers(self) -> None:
        path = self.config.actor_rollout_ref.model.path
        servers = {f"server-{n}": ray.remote(StandInServer).remote(path) for n in range(2)}
        balancer = ray.remote(GlobalRequestLoadBalancer).remote(servers)
        self.actor_rollout_wg = StandInActors()
        self.servers = list(servers.values())
        self.agent_loops = AgentLoopManager.create(
            self.config,
            LLMServerClient(self.config, balancer),
            reward_loop_worker_handles=[ray.remote(StandInReward).remote()],
        )
        self.global_steps, self.steps_per_epoch, self.total_training_steps = 0, STEPS, STEPS
        self.results: list[Any] = []
        self.timed: list[list[str]] = []

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        with marked_timer("gen", timing_raw, color="red"):
            ray.get([server.set_version.remote(self.global_steps) for server in self.servers])
            output = self.agent_loops.generate_sequences(self.batch())
        self.results.append(output.batch["response_mask"].sum(dim=1).tolist())
        key = f"step-{self.global_steps}"  # what `fit` clears from the queue
        tq.kv_put(key=key, partition_id="train", tag={"step": self.global_steps})
        return KVBatchMeta(partition_id="train", keys=[key], tags=[{}])

    def end_workers(self) -> None:
        """End the agent loops as a program ends: an actor that is killed loses its last second."""
        workers = self.agent_loops.agent_loop_workers
        ray.wait(
            [worker.__ray_terminate__.remote() for worker in workers], num_returns=len(workers)
        )

    def batch(self) -> DataProto:
        """Prompts, the first of which has a long answer."""
        prompts = [[{"role": "user", "content": f"word {n}"}] for n in range(SAMPLES)]
        raw = np.empty(SAMPLES, dtype=object)
        raw[:] = prompts
        return DataProto.from_dict(
            tensors={"ids": torch.arange(SAMPLES).unsqueeze(1)},
            non_tensors={"raw_prompt": raw, "index": np.arange(SAMPLES)},
            meta_info={"global_steps": self.global_steps},
        )


@ray.remote
class TaskRunner:
    """As verl's, which a recipe may replace."""

    def run(self, config: Any) -> None:
        OmegaConf.resolve(config)
        tq.init(config.transfer_queue)
        try:
            trainer = Trainer(config=config)
            trainer.init_workers()
            trainer.fit(None)
            trainer.end_workers()
            Path(config.trainer.default_local_dir).write_text(
                json.dumps({"tokens": trainer.results})
            )
        finally:
            tq.close()


def main() -> None:
    settings = Path(verl.trainer.main_ppo.__file__).parent / "config/_generated_ppo_trainer.yaml"
    here = Path(__file__).parent
    words = [*ON_CPUS, *sys.argv[1:]]
    model = Path(dict(word.split("=", 1) for word in words)["trainer.default_local_dir"])
    model = model.with_name("model")
    save_model(model)
    words += [
        f"actor_rollout_ref.model.path={model}",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        f"actor_rollout_ref.rollout.multi_turn.function_tool_path={here / 'verl_tool.py'}",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.multi_turn.format=hermes",
        "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.prompt_length=256",
        "actor_rollout_ref.rollout.response_length=512",
    ]
    config = OmegaConf.merge(
        OmegaConf.load(settings), OmegaConf.from_dotlist([w.lstrip("+") for w in words])
    )
    validate_config(config=config, use_reference_policy=False, use_critic=False)
    run_ppo(config, task_runner_class=TaskRunner)


if __name__ == "__main__":
    main()

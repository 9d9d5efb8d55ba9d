"""Ten steps of verl on CPUs: its `run_ppo`, its trainer's `fit`, two ranks of its worker group.

Only the work is ours, as no inference engine runs on CPUs: what a step computes, and the metrics.
Nothing here knows gpuprof. Writes results, and the names of what verl timed, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq
import verl.trainer.main_ppo
from omegaconf import OmegaConf
from verl.single_controller.ray import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    create_colocated_worker_cls,
)
from verl.trainer.main_ppo import run_ppo
from verl.trainer.ppo.v1.trainer_base import KVBatchMeta, PPOTrainer
from verl.utils.config import validate_config
from verl.utils.profiler import marked_timer
from verl_workers import ActorRolloutRefWorker, AgentLoopWorker

ON_CPUS = (
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "algorithm.adv_estimator=grpo",
    "critic.enable=False",
    "trainer.device=cpu",
    "trainer.n_gpus_per_node=1",
    "trainer.logger=[console]",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "data.train_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1",
)


class Trainer(PPOTrainer):
    """verl's trainer, with a step that runs on CPUs."""

    def _build_replay_buffer(self) -> None:
        return None

    def init_workers(self) -> None:
        pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1, name_prefix="train")
        made = RayClassWithInitArgs(
            cls=ray.remote(ActorRolloutRefWorker), config=self.config.actor_rollout_ref
        )
        classes = {"actor_rollout": made}
        options: dict[str, Any] = {"device_name": "cpu"}
        if self.config.global_profiler.steps is not None:  # as in verl's `_setup`
            options["profile_steps"] = self.config.global_profiler.steps
            options["worker_nsight_options"] = OmegaConf.to_container(
                self.config.global_profiler.global_tool_config.nsys.worker_nsight_options
            )
        group = RayWorkerGroup(pool, create_colocated_worker_cls(class_dict=classes), **options)
        self.actor_rollout_wg = group.spawn(prefix_set=classes.keys())["actor_rollout"]
        self.agent_loop = ray.remote(AgentLoopWorker).remote()
        self.global_steps, self.steps_per_epoch, self.total_training_steps = 0, 10, 10
        self.results: list[Any] = []
        self.timed: list[list[str]] = []

    def _reissue_inflight_prompts(self) -> None:
        pass

    def _shutdown_dump_executor(self) -> None:
        pass

    def on_step_end(self) -> None:
        pass

    def on_sample_end(self) -> None:
        pass

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        with marked_timer("gen", timing_raw, color="red"):
            generated = self.actor_rollout_wg.generate(self.global_steps)
            generated += ray.get(self.agent_loop.generate.remote(self.global_steps))
        with marked_timer("update_actor", timing_raw, color="red"):
            updated = self.actor_rollout_wg.update_actor(self.global_steps)
        self.results.append([generated, updated])
        key = f"step-{self.global_steps}"  # what `fit` clears from the queue
        tq.kv_put(key=key, partition_id="train", tag={"step": self.global_steps})
        return KVBatchMeta(partition_id="train", keys=[key], tags=[{}])

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], **others: Any
    ) -> None:
        metrics.update({f"timing_s/{name}": value for name, value in timing_raw.items()})
        self.timed.append(sorted(timing_raw))


@ray.remote
class TaskRunner:
    """As verl's, which a recipe may replace."""

    def run(self, config: Any) -> None:
        file = config.trainer.default_local_dir
        OmegaConf.resolve(config)
        tq.init(config.transfer_queue)
        try:
            trainer = Trainer(config=config)
            trainer.init_workers()
            seen = trainer.actor_rollout_wg.seen()
            trainer.fit(None)
            done = {"results": trainer.results, "timed": trainer.timed, "seen": seen}
            Path(file).write_text(json.dumps(done))
        finally:
            tq.close()


def main() -> None:
    settings = Path(verl.trainer.main_ppo.__file__).parent / "config/_generated_ppo_trainer.yaml"
    words = [*ON_CPUS, *sys.argv[1:]]
    config = OmegaConf.merge(OmegaConf.load(settings), OmegaConf.from_dotlist(words))
    validate_config(config=config, use_reference_policy=False, use_critic=False)
    run_ppo(config, task_runner_class=TaskRunner)


if __name__ == "__main__":
    main()

"""verl's asynchronous trainers, with steps that run on CPUs: their `__init__` and `fit` are verl's.

In a module of its own, which processes import, as they import verl's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.experimental.fully_async_policy.fully_async_trainer import (
    FullyAsyncTrainer,
    TrainingStopException,
)
from verl.experimental.one_step_off_policy.ray_trainer import OneStepOffRayTrainer
from verl.single_controller.ray import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    create_colocated_worker_cls,
)
from verl.utils.profiler import marked_timer
from verl_workers import ActorRolloutRefWorker


class OnCPUs:
    """What the steps of both trainers do."""

    config: Any
    global_steps: int
    metrics: dict[str, Any]
    timing_raw: dict[str, float]

    def make_group(self) -> None:
        """Two ranks, with the options that verl's own `_init_worker_groups` gives."""
        pool = RayResourcePool(
            [2], use_gpu=False, max_colocate_count=1, name_prefix=type(self).__name__
        )
        actor = RayClassWithInitArgs(
            cls=ray.remote(ActorRolloutRefWorker), config=self.config.actor_rollout_ref
        )
        nsys = self.config.global_profiler.global_tool_config.nsys
        group = RayWorkerGroup(
            pool,
            create_colocated_worker_cls(class_dict={"actor": actor}),
            device_name="cpu",
            profile_steps=self.config.global_profiler.steps,
            worker_nsight_options=OmegaConf.to_container(nsys.worker_nsight_options),
        )
        self.actor_wg = self.actor_rollout_wg = group.spawn(prefix_set=["actor"])["actor"]

    def _fit_update_actor(self, batch: Any) -> Any:
        with marked_timer("update_actor", self.timing_raw, color="red"):
            self.actor_wg.update_actor(self.global_steps)
        return batch

    def _pass(self, batch: Any = None) -> Any:
        return batch

    _fit_compute_reward = _fit_compute_log_prob = _fit_compute_ref_log_prob = _pass
    _fit_compute_critic = _fit_compute_advantage = _fit_update_critic = _pass
    _fit_dump_data = _fit_save_checkpoint = _fit_experimental = _load_checkpoint = _pass

    def _fit_collect_metrics(self, batch: Any) -> None:
        self.metrics["updates"] = self.global_steps


class OneStepOff(OnCPUs, OneStepOffRayTrainer):
    """Five steps, each with a new version of the parameters."""

    def _create_dataloader(self, *args: Any) -> None:
        self.total_training_steps = 5

    def init_workers(self) -> None:
        self.make_group()

    def _create_continuous_iterator(self) -> Iterator[Any]:
        return iter(())

    async def _async_gen_next_batch(self, continuous_iterator: Any) -> None:
        await asyncio.sleep(0)

    async def _fit_generate(self, batch_data_future: Any, continuous_iterator: Any) -> Any:
        await batch_data_future
        with marked_timer("gen", self.timing_raw, color="red"):
            self.actor_wg.generate(self.global_steps)
        return None, asyncio.create_task(self._async_gen_next_batch(continuous_iterator))

    def _fit_update_weights(self) -> None:
        pass

    def _fit_validate(self) -> None:
        pass


class FullyAsync(OnCPUs, FullyAsyncTrainer.__ray_metadata__.modified_class):
    """Eight updates: a new version of the parameters after every second one."""

    async def init_workers(self) -> None:
        self.make_group()
        self.message_queue_client = self.rollouter = self
        self.set_total_train_steps(8)

    async def _fit_generate(self, batch: Any = None) -> Any:
        if self.global_steps > 8:
            raise TrainingStopException
        with marked_timer("gen", self.timing_raw, color="red"):
            self.actor_wg.generate(self.global_steps)

    async def _fit_update_weights(self) -> None:
        pass

    async def _fit_validate(self) -> None:
        pass

    def _fit_save_checkpoint(self, force: bool = False) -> None:
        pass

    def _fit_postprocess_step(self) -> None:
        self.global_steps += 1

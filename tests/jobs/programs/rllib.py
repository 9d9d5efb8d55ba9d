"""RLlib's PPO, APPO or IMPALA on two environments, of which the second is slow."""

import os
import sys
import time

import gymnasium
import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env


class Slow(gymnasium.Wrapper):
    def __init__(self, env, slow):
        super().__init__(env)
        self.slow = slow

    def step(self, action):
        if self.slow:
            time.sleep(0.01)
        return self.env.step(action)


ray.init(
    num_cpus=4,
    _temp_dir=os.environ["RAY_DIRECTORY"],
    _node_ip_address="127.0.0.1",
    include_dashboard=False,
)
register_env("slow", lambda ctx: Slow(gymnasium.make("CartPole-v1"), ctx.worker_index == 2))
kinds = {"ppo": PPOConfig, "appo": APPOConfig, "impala": IMPALAConfig}
config = kinds[sys.argv[1]]().environment("slow").env_runners(num_env_runners=2).debugging(seed=0)
if sys.argv[1] == "ppo":
    config = config.training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=1)
else:
    config = config.reporting(min_time_s_per_iteration=1).training(train_batch_size_per_learner=200)
algorithm = config.build_algo()
for _ in range(14 if sys.argv[1] == "ppo" else 40):
    result = algorithm.train()
algorithm.stop()
print("result", result["training_iteration"])

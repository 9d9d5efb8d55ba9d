"""Ray Tune with two trials: a function, of which the second trial is slow."""

import os
import sys
import time

import ray
from ray import tune


def trial(config):
    for step in range(12):
        time.sleep(0.02 * config["slow"])
        tune.report({"score": step * config["slow"]})


ray.init(
    num_cpus=2,
    _temp_dir=os.environ["RAY_DIRECTORY"],
    _node_ip_address="127.0.0.1",
    include_dashboard=False,
)
tuner = tune.Tuner(
    trial,
    param_space={"slow": tune.grid_search([1, 5])},
    run_config=tune.RunConfig(storage_path=sys.argv[1], verbose=0),
)
print("result", sorted(each.metrics["score"] for each in tuner.fit()))

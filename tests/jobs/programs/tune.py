"""Ray Tune with two trials: a function, of which the second trial is slow."""

import os
import sys
import time

import ray
import torch
from ray import tune


def trial(config):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters())
    for step in range(24):
        time.sleep(0.02 * config["slow"])
        model(torch.ones(8)).sum().backward()
        optimizer.step()
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

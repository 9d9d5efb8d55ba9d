"""Ray Train's TorchTrainer on two workers, of which rank 1 is slow."""

import os
import sys
import time
from pathlib import Path

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


class Batches(torch.utils.data.Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 20

    def __getitem__(self, number):
        if self.slow:
            time.sleep(0.05)
        return torch.full((16,), float(number))


def loop(config):
    torch.manual_seed(0)
    slow = ray.train.get_context().get_world_rank() == 1
    model = prepare_model(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Batches(slow)):
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
        ray.train.report({"loss": loss.item()})
    if not slow:
        Path(config["directory"], "loss").write_text(str(loss.item()))


ray.init(
    num_cpus=4,
    _temp_dir=os.environ["RAY_DIRECTORY"],
    _node_ip_address="127.0.0.1",
    include_dashboard=False,
)
run = RunConfig(storage_path=sys.argv[1])
trainer = TorchTrainer(
    loop,
    train_loop_config={"directory": sys.argv[1]},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=run,
)
trainer.fit()
print("result", Path(sys.argv[1], "loss").read_text())

"""A small job of torch that has never heard of gpuprof: ``torchrun ddp_job.py [CAUSE]``.

With ``LOADING=0`` in its environment, it does not wait for data. Prints the seconds that the loop
took.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

CAUSE = [*sys.argv[1:], ""][0]
RANK = int(os.environ["RANK"])
STEPS = 40


def take(where: str, seconds: float) -> None:
    """Sleep, a tenth more or less: three times as long for the cause, such as ``data-1``."""
    slow = 3 if CAUSE in (f"{where}-{RANK}", where) else 1
    time.sleep(seconds * random.uniform(0.9, 1.1) * slow)


class Samples(Dataset[Any]):
    """Batches that take time to load."""

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> torch.Tensor:
        take("data", 0.02 * float(os.environ.get("LOADING", "1")))
        return torch.ones(4, 8)


class Model(torch.nn.Module):
    """Takes time in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The prediction."""
        take("forward", 0.03)
        predicted: torch.Tensor = self.layer(batch)
        return predicted


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    random.seed(RANK)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dist.barrier()
    begun = time.perf_counter()
    for number, batch in enumerate(DataLoader(Samples(), batch_size=None)):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if number % 10 == 9 and RANK == 0:
            take("save", 0.02)
    dist.barrier()
    if RANK == 0:
        sys.stdout.write(f"loop {time.perf_counter() - begun:.3f}\n")
    dist.destroy_process_group()


main()

"""Data-parallel training that counts its own steps: every rank runs this file.

Two ranks on a CPU are enough.

The instrumentation is `gpuprof.step`, `gpuprof.timer` and `add_time`. Without `gpuprof run` in
front of it, it only times.
"""

from __future__ import annotations

import argparse
import os

import gpuprof
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@gpuprof.timer("train_step")
def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    """One step: forward, backward with its all-reduce, update. Returns the loss."""
    timing = gpuprof.timing()
    optimizer.zero_grad()
    with timing.add_time("forward"):
        loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
    with timing.add_time("backward"):
        loss.backward()
    with timing.add_time("update"):
        optimizer.step()
    return loss.item()


RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def join_the_others() -> int:
    """Find the other ranks: of torchrun, of mpirun, of srun, or none. Returns the rank."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    rank, size = (
        next((os.environ[name] for name in names if name in os.environ), None)
        for names in (RANK, SIZE)
    )
    dist.init_process_group("gloo", rank=int(rank or 0), world_size=int(size or 1))
    return dist.get_rank()


def main() -> None:
    """Fit a sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    rank = join_the_others()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = 0.0
    for step in range(steps):
        with gpuprof.step(step):
            loss = train_step(model, optimizer, torch.randn(512, 16))
    print(f"rank {rank}: loss {loss:.3f} after {steps} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Ranks that meet in every step: ``ranks_job.py SOCKET all=1.1|RANK=1.1|none``, with ``RANK`` set.

A step is work as of a device, which is sleep, and a tenth of it on the processor.
"""

from __future__ import annotations

import os
import random
import sys
import time
from multiprocessing.connection import Client, Connection, Listener

import gpuprof

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS = 60
SOCKET, SLOWER = sys.argv[1:]
WHO, _, BY = SLOWER.partition("=")
FACTOR = float(BY) if WHO in ("all", str(RANK)) else 1.0


def work(milliseconds: float) -> None:
    """Take about so long, as work varies."""
    for _ in range(int(3000 * milliseconds * FACTOR)):  # a fixed count, whoever else computes
        pass
    time.sleep(0.9 * milliseconds * FACTOR * random.gauss(1, 0.02) / 1000)


def connections() -> list[Connection]:
    """Rank 0's to all others, and theirs to rank 0."""
    if RANK == 0:
        with Listener(SOCKET) as listener:
            return [listener.accept() for _ in range(RANKS - 1)]
    while True:
        try:
            return [Client(SOCKET)]
        except OSError:
            time.sleep(0.05)


def meet(others: list[Connection]) -> None:
    """Nobody leaves before all have come."""
    if RANK == 0:
        for each in others:
            each.recv_bytes()
        for each in others:
            each.send_bytes(b"go")
    else:
        others[0].send_bytes(b"here")
        others[0].recv_bytes()


def main() -> None:
    """Take some steps."""
    random.seed()
    others = connections()
    for number in range(STEPS):
        with gpuprof.step(number):
            with gpuprof.timer("forward"):
                work(15)
            with gpuprof.timer("backward"):
                work(25)
            with gpuprof.timer("all_reduce", waits_for="barrier"):
                meet(others)


main()

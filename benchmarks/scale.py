"""The driver's work for 100 to 10,000 workers: plan, order a window, merge the tree.

The workers are connections of real sockets to the driver's real channel, answered by one thread of
another process, and the trees are those of 200 nodes of `timing_merge`. What a real cluster adds is
the network. Costs must not grow faster than the job.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import selectors
import socket
import sys
import time
from typing import Any

from gpuprof._config.load import load
from gpuprof._plan.planner import Planner
from gpuprof.backend.types import Window
from gpuprof.ray._channel import Channel
from gpuprof.ray._wire import Address, proof
from gpuprof_timing import Timing
from tabulate import tabulate
from timing_merge import Trees

COUNTS = (100, 1000, 10_000)
GOAL_GROWTH = 2.0
"""How many times more a worker may cost in the largest job than in the smallest."""
_ROUNDS = 5


def main() -> int:
    """Measure, print, and say whether the goal was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    counts = parser.parse_args().counts
    # Each connection is a file on both sides.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    counts = [count for count in counts if count + 200 < most]
    rows = [
        (
            count,
            *(1e6 * seconds / count for seconds in (plan(count), broadcast(count), merge(count))),
        )
        for count in counts
    ]
    headers = ["workers", "plan, µs a worker", "window, µs a worker", "merge, µs a worker"]
    print(tabulate(rows, headers, floatfmt=".1f", tablefmt="github"))
    growth = [rows[-1][column] / rows[0][column] for column in (1, 2, 3)]
    print(
        f"from {counts[0]} to {counts[-1]} workers, the cost of one grows "
        f"{', '.join(f'{factor:.2f}' for factor in growth)} times"
    )
    return 0 if max(growth) <= GOAL_GROWTH else 1


def plan(count: int) -> float:
    """Seconds for the rows of all workers, with their windows and as what travels to them."""
    planner = Planner(
        load({"backend": "nsight", "worker_groups": "all", "steps": [3, 10, 50]}), "run", "/output"
    )
    planner.row(planner.worker("ActorGroup", count), ["python"], None)  # the backend's import
    start = time.perf_counter()
    for rank in range(count):
        planner.row(planner.worker("ActorGroup", rank, has_gpu=True), ["python"], None)
    return time.perf_counter() - start


def broadcast(count: int) -> float:
    """Seconds until the last worker has opened a window; the best of several rounds."""
    channel = Channel("127.0.0.1")
    context = multiprocessing.get_context("spawn")
    workers = context.Process(target=answer, args=(channel.address, count), daemon=True)
    workers.start()
    while len(channel.connected()) < count:
        time.sleep(0.01)
    windows = {name(rank): Window(1, 3, 4) for rank in range(count)}
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        request = channel.post("open", windows, 120.0)
        if not request.wait(120.0):
            raise SystemExit(f"{count - len(request.answers)} of {count} workers have not answered")
        best = min(best, time.perf_counter() - start)
        channel.forget(request)
    workers.kill()
    workers.join()
    channel.close()
    return best


def name(rank: int) -> str:
    """A worker's."""
    return f"ActorGroup-{rank}"


def answer(address: Address, count: int) -> None:
    """All workers, in one thread: each answers what it is told on a connection of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ready = selectors.DefaultSelector()
    for rank in range(count):
        connection = socket.create_connection((address.host, address.port))
        challenge = json.loads(connection.makefile().readline())["challenge"]
        proved = proof(address.secret, challenge, name(rank))
        connection.sendall(line({"worker": name(rank), "proof": proved, "clock": "clock"}))
        ready.register(connection, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            worker: Any = key.fileobj
            told = worker.recv(65536)
            if not told:
                return
            worker.sendall(
                line({"number": json.loads(told)["number"], "problem": None, "window": None})
            )


def line(message: dict[str, Any]) -> bytes:
    """A message as it travels."""
    return json.dumps(message).encode() + b"\n"


def merge(count: int) -> float:
    """Seconds for one tree out of all, without making them."""
    trees = Trees(count)
    start = time.perf_counter()
    Timing.merge(trees)
    return time.perf_counter() - start - trees.seconds


if __name__ == "__main__":
    sys.exit(main())

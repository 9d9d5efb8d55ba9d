"""What it takes to merge the timing trees of a large job: 10,000 processes with 200 nodes each.

The trees come out of a generator, as they would out of files; making them is timed on its own. The
process is a fresh one, so its peak memory is that of the merge.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

from gpuprof_timing import Timing
from tabulate import tabulate

GOAL_SECONDS = 20.0
GOAL_MEGABYTES = 1000.0
SHAPE = (8, 4, 5)
"""Children at each depth: 8 + 8 * 4 + 8 * 4 * 5 = 200 nodes."""


def template() -> dict[str, Any]:
    """A tree as one process writes it."""
    timing = Timing("process", enabled=True)
    top, middle, bottom = SHAPE
    for i in range(top):
        with timing.add_time(f"phase {i}"):
            for j in range(middle):
                with timing.add_time(f"part {j}"):
                    for k in range(bottom):
                        with timing.add_time(f"step {k}"):
                            pass
    return timing.to_dict()


def nodes(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a tree."""
    for child in data["children"]:
        yield child
        yield from nodes(child)


class Trees:
    """Trees that are made when they are asked for.

    Attributes:
        seconds: how long making them took.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Timing]:
        data = template()
        every = list(nodes(data))
        numbers = random.Random(0)
        for process in range(self.count):
            start = time.perf_counter()
            data["name"] = f"process {process}"
            factor = numbers.randrange(1_000, 1_000_000)
            for node in every:
                # Scopes of one duration: what is written is then consistent.
                count = node["count"]
                node["total"], node["squares"] = count * factor, str(count * factor * factor)
                node["minimum"] = node["maximum"] = node["last"] = factor
            tree = Timing.from_dict(data)
            self.seconds += time.perf_counter() - start
            yield tree


def main() -> int:
    """Merge, print the figures, and say by the exit code whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=10_000, help="how many (default: 10000)")
    arguments = parser.parse_args()

    def peak() -> float:
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
        return kilobytes / (1e6 if sys.platform == "darwin" else 1e3)

    before = peak()
    trees = Trees(arguments.trees)
    start = time.perf_counter()
    merged = Timing.merge(trees)
    seconds = time.perf_counter() - start - trees.seconds
    megabytes = peak()

    size = sum(1 for _ in nodes(merged.to_dict()))
    rows = [
        ["making the trees, s", trees.seconds, None],
        ["merging them, s", seconds, GOAL_SECONDS],
        ["peak memory, MB", megabytes, GOAL_MEGABYTES],
        ["peak memory before, MB", before, None],
    ]
    print(f"{arguments.trees} trees into one of {size} nodes")
    print(tabulate(rows, ["what", "measured", "goal"], tablefmt="github", floatfmt=".1f"))
    missed = [row[0] for row in rows if row[2] is not None and row[1] > row[2]]
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a scope with a key costs, and a marked call of each instrument, beside a bare one.

Everything is measured in one process and in turns. A ledger's recording runs all the time; what it
has recorded is taken once a round, outside the measurement, as the control thread does.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpuprof._session import instruments
from gpuprof_timing import Timing
from gpuprof_timing._spans import SpanLog
from tabulate import tabulate


class Pair(NamedTuple):
    """The same thing, bare and marked.

    Args:
        name: what the table calls it.
        bare: does it once.
        marked: does it once, marked.
        share: how many of them a round has, as a share of `--iterations`.
    """

    name: str
    bare: Callable[[], object]
    marked: Callable[[], object]
    share: float = 1.0


def scopes(timing: Timing) -> list[Pair]:
    """Scopes with and without a key."""

    def plain() -> None:
        with timing.add_time("plain"):
            pass

    def with_key() -> None:
        with timing.add_time("key", None, "EnvGroup", "batch-3"):
            pass

    def without_key() -> None:
        with timing.add_time("no key", None, "EnvGroup"):
            pass

    @timing.add_time("decorated")
    def decorated(batch: int) -> None:
        pass

    @timing.add_time("decorated with a key", key=lambda batch: f"batch-{batch}")
    def with_key_of_call(batch: int) -> None:
        pass

    return [
        Pair("a scope that waits", plain, without_key),
        Pair("a scope that waits, with a key", plain, with_key),
        Pair(
            "a decorated function, a key of each call",
            lambda: decorated(3),
            lambda: with_key_of_call(3),
        ),
    ]


def queues(timing: Timing) -> Pair:
    """A put and a get in one thread."""
    bare: Any = type("Bare", (queue.Queue,), dict(vars(queue.Queue)))  # with functions of its own
    items: queue.Queue[int] = queue.Queue()
    instruments.begin(["queue"], timing, sys.exit)

    def pass_one(through: Any) -> Callable[[], object]:
        def pass_it() -> None:
            through.put(1)
            through.get()

        return pass_it

    return Pair("queue.Queue: put and get", pass_one(bare()), pass_one(items), 0.2)


def collectives(timing: Timing) -> Pair:
    """An all_reduce of one rank."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    bare, tensor = dist.all_reduce, torch.ones(1)
    instruments.begin(["torch"], timing, sys.exit)
    return Pair("gloo: all_reduce, one rank", lambda: bare(tensor), lambda: dist.all_reduce(tensor))


@contextlib.contextmanager
def ray_calls(kind: str) -> Iterator[Pair]:
    """A call of an actor and its result, with the instrument on both sides."""
    import ray
    from gpuprof.ray import Profiler

    class Plain:
        def act(self) -> int:
            return 1

    class Async:
        async def act(self) -> int:
            return 1

    actor = ray.remote({"plain": Plain, "async": Async}[kind])
    bare = ray.get
    with tempfile.TemporaryDirectory() as directory:
        settings = {
            "backend": "none",
            "worker_groups": "all",
            "instruments": ["ray"],
            "output_dir": directory,
            "print_trees": "none",
        }
        profiler = Profiler(settings)
        there = profiler.start(
            lambda options: actor.options(**options).remote(), group="Actor", rank=0, num_cpus=0
        )
        other = actor.options(num_cpus=0).remote()
        bare([there.__ray_call__.remote(id), other.act.remote()])
        yield Pair(
            f"Ray: a call of {'an async' if kind == 'async' else 'a plain'} actor",
            lambda: bare(other.act.remote()),
            lambda: ray.get(there.act.remote()),
            0.05,
        )
        profiler.finalize()


def measure(
    pairs: list[Pair], rounds: int, iterations: int, log: SpanLog | None
) -> list[list[Any]]:
    """A row for each pair: microseconds of both, and of the difference."""
    rows = []
    for pair in pairs:
        count = max(1, int(iterations * pair.share))
        samples: dict[str, list[float]] = {"bare": [], "marked": []}
        for turn in range(rounds + 1):
            order = ["bare", "marked"] if turn % 2 else ["marked", "bare"]
            for which in order:
                seconds = timeit.timeit(getattr(pair, which), number=count)
                if turn:  # the first round is thrown away
                    samples[which].append(seconds / count * 1e6)
            if log is not None:
                list(log.take())
        added = [m - b for b, m in zip(samples["bare"], samples["marked"], strict=True)]
        rows.append(
            [pair.name, min(samples["bare"]), min(samples["marked"]), statistics.median(added)]
        )
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="samples of each (default: 300)")
    parser.add_argument(
        "--iterations", type=int, default=200, help="scopes in a sample (default: 200)"
    )
    parser.add_argument("--ray", action="store_true", help="also calls of Ray's actors")
    arguments = parser.parse_args()
    rows = []
    timing, log = Timing("benchmark", enabled=True), SpanLog(time.perf_counter_ns)
    log.begin()
    pairs = [*scopes(timing), queues(timing)]
    try:
        pairs.append(collectives(timing))
    except ImportError as error:
        print(f"left out: collectives ({error})")
    rows += measure(pairs, arguments.rounds, arguments.iterations, log)
    log.end()
    if arguments.ray:
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        for kind in ("plain", "async"):
            with ray_calls(kind) as pair:
                rows += measure([pair], arguments.rounds, arguments.iterations, None)
        ray.shutdown()
    headers = ["what", "bare, min µs", "marked, min µs", "added, median µs"]
    print(tabulate(rows, headers, tablefmt="github", floatfmt=("", ".2f", ".2f", ".2f")))


if __name__ == "__main__":
    main()

"""A `Timing` in Ray's actors without a profiler: pickling, async, results."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support.cluster import address
from support.waiting import DEADLINE

# A driver of its own, as Ray serialises the classes of `__main__` by value, with the globals that
# their methods use.
_DRIVER = """
import json
import sys

import ray
from gpuprof_timing import Timing

timing = Timing("module's")


class Worker:
    @timing.add_time("decorated")
    def decorated(self, value):
        with timing.add_time("inside"):
            return value

    @timing.add_time("produce")
    def produce(self):
        yield 1
        yield 2

    def consume(self):
        return list(self.produce())

    def plain(self, value):
        with timing.timeit("plain"):
            return value

    def tree(self):
        return timing.to_dict()


@timing.add_time("task")
def task():
    return timing.to_dict()


with timing.add_time("driver"):
    ray.init(address=sys.argv[1], log_to_driver=False)
    actor = ray.remote(Worker).options(num_cpus=0).remote()
    results = ray.get([actor.decorated.remote(3), actor.plain.remote(4), actor.consume.remote()])
    trees = ray.get([actor.tree.remote(), ray.remote(task).options(num_cpus=0).remote()])
ray.shutdown()
print(json.dumps({"results": results, "actor": trees[0], "task": trees[1],
                  "driver": timing.to_dict()}))
"""


def paths(nodes: list[dict[str, Any]], above: str = "") -> dict[str, tuple[int, int]]:
    """How often each place was left, and how many scopes are open there."""
    found = {}
    for node in nodes:
        path = above + node["key"]
        found[path] = (node["count"], node["open"])
        found.update(paths(node["children"], f"{path}/"))
    return found


def test_a_timing_of_the_drivers_module_travels_with_its_actors() -> None:
    """An actor gets one empty `Timing` for its methods and decorators."""
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, address()],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [3, 4, [1, 2]] == found["results"]
    assert "module's" == found["actor"]["name"]
    assert {
        "actor": {
            "decorated": (1, 0),
            "decorated/inside": (1, 0),
            "plain": (1, 0),
            "produce": (3, 0),
        },
        "task": {"task": (0, 1)},
        "driver": {"driver": (1, 0)},
    } == {who: paths(found[who]["children"]) for who in ("actor", "task", "driver")}


def test_a_decorated_asynchronous_method_stays_one(ray: Any) -> None:
    """An async actor's overlapping calls each have their own place in the tree."""
    from gpuprof_timing import Timing

    timing = Timing("actor's")

    class Worker:
        def __init__(self) -> None:
            import asyncio

            self._met = asyncio.Event()
            self._waiting = 0

        @timing.timeit("meet")
        async def meet(self, number: int) -> int:
            """Ends when three calls are inside: they never would, one after the other."""
            self._waiting += 1
            if self._waiting == 3:
                self._met.set()
            with timing.add_time(f"call {number}"):
                await self._met.wait()
            return number

        async def tree(self) -> dict[str, Any]:
            return timing.to_dict()

    actor = ray.remote(Worker).options(num_cpus=0).remote()
    try:
        assert [0, 1, 2] == ray.get(
            [actor.meet.remote(number) for number in range(3)], timeout=DEADLINE
        )
        tree = ray.get(actor.tree.remote(), timeout=DEADLINE)
    finally:
        ray.kill(actor)
    assert {"meet": (3, 0), **{f"meet/call {number}": (1, 0) for number in range(3)}} == paths(
        tree["children"]
    )
    assert ["timeit", "add_time"] == [
        tree["children"][0]["kind"],
        tree["children"][0]["children"][0]["kind"],
    ]


def test_a_decorated_asynchronous_generator_streams(ray: Any) -> None:
    """A method that yields stays a streaming one, and its time arrives."""
    from gpuprof_timing import Timing

    timing = Timing("actor's")

    class Worker:
        @timing.add_time("stream")
        async def stream(self) -> Any:
            for value in range(3):
                yield value

        async def tree(self) -> dict[str, Any]:
            return timing.to_dict()

    actor = ray.remote(Worker).options(num_cpus=0).remote()
    try:
        values = [
            ray.get(value) for value in actor.stream.options(num_returns="streaming").remote()
        ]
        tree = ray.get(actor.tree.remote(), timeout=DEADLINE)
    finally:
        ray.kill(actor)
    assert [0, 1, 2] == values
    assert {"stream": (4, 0)} == paths(tree["children"])


def test_trees_of_several_actors_merge(ray: Any) -> None:
    """What actors return as data is one tree on the driver, which names the slowest."""
    from gpuprof_timing import Timing

    class Worker:
        def __init__(self, rank: int) -> None:
            # Each takes as many seconds as its rank says, by a clock of its own.
            ticks = iter(range(0, 10**15, (rank + 1) * 10**9))
            self._timing = Timing(f"actor {rank}", clock=lambda: next(ticks))

        def work(self) -> dict[str, Any]:
            with self._timing.add_time("work"):
                pass
            return self._timing.to_dict()

    actors = [ray.remote(Worker).options(num_cpus=0).remote(rank) for rank in range(3)]
    try:
        trees = ray.get([actor.work.remote() for actor in actors], timeout=DEADLINE)
    finally:
        for actor in actors:
            ray.kill(actor)
    merged = Timing.merge(map(Timing.from_dict, trees))
    assert 6.0 == merged["work"]
    assert {"work": (3, 0)} == paths(merged.to_dict()["children"])
    assert "actor 2 (3.0000)" in merged.table()

"""Who waits for whom on Ray, by the ids of tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from gpuprof._artifacts.ledger import RELEASES, WAITS, Ledger, ledgers
from support.cluster import address
from support.waiting import DEADLINE

_DRIVER = """
import asyncio
import sys

import gpuprof
import ray
from gpuprof.ray import Profiler


def start(_):
    gpuprof.timing()


class Env:
    def act(self, step):
        return step

    def observe(self, batch):
        return [batch]

    def stream(self, batch):
        yield [batch]


class Rollout:
    async def act(self, step):
        await asyncio.sleep(0)
        return step


ray.init(address=sys.argv[1], log_to_driver=False)
config = {"backend": "none", "worker_groups": "all", "instruments": ["ray"],
          "output_dir": sys.argv[2]}
with Profiler(config) as profiler:
    actors = {}
    for kind in (Env, Rollout):
        group = kind.__name__
        options = profiler.worker_options(group=group, rank=0, num_cpus=0)
        actors[group] = ray.remote(kind).options(**options).remote()
        profiler.add(actors[group], group=group, rank=0)
    # Ray may run an async actor's first calls before the one that starts its session
    get, ready = ray.get, [actor.__ray_call__.remote(start) for actor in actors.values()]
    get.__wrapped__(ready)
    for step in range(3):
        with profiler.step(step):
            assert step == ray.get(actors["Env"].act.remote(step))
            both = [actors["Env"].act.remote(step)]
            both.append(actors["Rollout"].act.remote(both[0]))
            ready, _ = ray.wait(both, num_returns=2)
            assert [step, step] == ray.get(ready)
            assert 2_000_000 == len(ray.get(ray.put(bytes(2_000_000))))
            assert [{}] == ray.get(actors["Env"].observe.remote({}))
            assert [bytes(200_000)] == ray.get(actors["Env"].observe.remote(bytes(200_000)))
            stream = actors["Env"].stream.options(num_returns="streaming").remote({})
            assert [[{}]] == [ray.get(item) for item in stream]
assert ray.get is not get, "still marked"
ray.shutdown()
"""


def keys(ledger: Ledger, role: int, place: str) -> list[int]:
    """The keys of a role at the places that end with a name, in order of time."""
    links = ledger.links[ledger.links["role"] == role]
    return [
        key
        for number, key in links[["place", "key"]].tolist()
        if ledger.places[number].key == place
    ]


@pytest.fixture(scope="module")
def by_name(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ledger]:
    """The ledgers of a job with a plain actor and an async one, by group."""
    directory = tmp_path_factory.mktemp("run")
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, address(), str(directory)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING runtime_context" not in done.stderr
    (run,) = (path for path in directory.iterdir() if path.is_dir() and path.name != "latest")
    found, problems = ledgers(run)
    assert [] == problems
    return {ledger.header["group"]: ledger for ledger in found}


@pytest.mark.parametrize(("method", "times"), [("Env.observe", 6), ("Env.stream", 3)])
def test_the_pickling_of_a_result_ends_its_call(
    method: str, times: int, by_name: dict[str, Ledger]
) -> None:
    """Whoever waits for the result of a method, or for an item, waits for that scope, too."""
    env = by_name["Env"]
    pickled, called = keys(env, RELEASES, "ray.serialize"), keys(env, RELEASES, method)
    waits = {*keys(by_name["Runner"], WAITS, "ray.get")}
    assert times == len(waits.intersection(called).intersection(pickled))


def test_the_pickling_of_arguments_is_a_scope(by_name: dict[str, Ledger]) -> None:
    """Of those that take time to pickle, and without a key."""
    driver = by_name["Runner"]
    names = [driver.places[place].key for place in driver.spans["place"].tolist()]
    assert 6 == names[names.index("ray.get") :].count("ray.serialize")
    assert [] == keys(driver, RELEASES, "ray.serialize")


def test_a_large_argument_is_put_into_the_store(by_name: dict[str, Ledger]) -> None:
    """Ray does so for each call, as the job itself does three times."""
    driver = by_name["Runner"]
    names = [driver.places[place].key for place in driver.spans["place"].tolist()]
    assert 6 == names.count("ray.put")


def test_each_get_finds_the_call_that_it_waits_for(by_name: dict[str, Ledger]) -> None:
    """A plain actor and an async one: every key that the driver waits for is released once."""
    released = Counter(
        key
        for group in ("Env", "Rollout")
        for key in keys(by_name[group], RELEASES, f"{group}.act")
    )
    driver = by_name["Runner"]
    assert [1] * 9 == list(released.values())
    assert set(released) < set(keys(driver, WAITS, "ray.get"))
    assert 6 == len(released & Counter(keys(driver, WAITS, "ray.wait")))
    put = [(driver.places[place].key, size) for place, _, size in driver.sizes.tolist()]
    assert [("ray.put", 2_000_000)] * 3 == [(name, size // 1000 * 1000) for name, size in put]
    # of each call that was sent inside the steps, what it takes: of Rollout's that of Env's
    sent = dict(driver.sent[["key", "needs"]].tolist())
    env = keys(by_name["Env"], RELEASES, "Env.act")
    taken = [sent[key] for key in keys(by_name["Rollout"], RELEASES, "Rollout.act")]
    assert [0] * 6 == [sent[key] for key in env]
    assert env[1::2] == taken

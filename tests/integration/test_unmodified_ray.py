"""A Ray job that has never heard of gpuprof, under `gpuprof run`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuprof._artifacts.ledger import RELEASES, WAITS, ledgers
from support import cluster
from support.launched import GPUPROF, NSIGHT, reports, run

JOB = """
import asyncio, os, time, ray
from ray.util.queue import Queue

def start():
    ray.init(runtime_env={"env_vars": {"OF_THE_JOB": "1"}})

start()

@ray.remote(num_cpus=0)
class Env:
    def __init__(self, seconds):
        self.seconds = seconds
    def sample(self):
        time.sleep(self.seconds)
        return os.environ.get("GPUPROF_LAUNCHED"), os.environ["OF_THE_JOB"]
    def stream(self):
        for number in range(2):
            time.sleep(0.001)
            yield number

@ray.remote(num_cpus=0)
class Parent:
    def __init__(self, queue):
        self.children = [Child.remote() for _ in range(2)]
        self.queue = queue
    def run(self):
        self.queue.put(ray.get([child.run.remote() for child in self.children]))
        return self.queue.get()

@ray.remote(num_cpus=0, runtime_env={"env_vars": {"OWN": "2"}})
class Child:
    def run(self):
        return os.environ["OWN"]

@ray.remote(num_cpus=0)
class Asynchronous:
    def __init__(self, *envs):
        self.envs = envs
    async def answer(self, number):
        await asyncio.sleep(0.001)
        await asyncio.gather(*[env.sample.remote() for env in self.envs])
        return number
    async def stream(self):
        async for ref in self.envs[0].stream.options(num_returns="streaming").remote():
            yield 10 * await ref

@ray.remote(num_cpus=0)
def square(number):
    return number * number

envs = [Env.remote(0.05 if rank == 2 else 0.01) for rank in range(3)]
parent, asynchronous = Parent.remote(Queue()), Asynchronous.remote(*envs)
named = [Env.options(name="one", get_if_exists=True).remote(0) for _ in range(2)]
short = ray.get(Asynchronous.remote().answer.remote(5))  # nobody keeps its handle
results = []
for step in range(15):
    results.append(ray.get([env.sample.remote() for env in envs]))
    results.append(ray.get(parent.run.remote()))
    results.append(ray.get([asynchronous.answer.remote(n) for n in range(2)]))
    results.append(ray.get(square.remote(step)))
    results.append([ray.get(ref) for ref in asynchronous.stream.remote()])
ray.kill(parent)
ray.shutdown()
start()
ray.get(Env.remote(0).sample.remote())
print("short", short, "results", set(map(str, results[:5])))
"""

AROUND_THE_README = """
import time, ray

@ray.remote(num_cpus=0)
class Env:
    def __init__(self, seconds):
        self.seconds = seconds
    def sample(self):
        time.sleep(self.seconds)

@ray.remote(num_cpus=0)
class Learner:
    def train(self, *batches):
        time.sleep(0.03)
    def sync(self):
        time.sleep(0.005)

envs = [Env.remote(seconds) for seconds in (0.02, 0.06, 0.02)]
learner = Learner.remote()
"""


NESTED = """
import ray

@ray.remote(num_cpus=0)
class SingleAgentEnvRunner:
    def sample(self):
        return 1

@ray.remote(num_cpus=0)
class MultiAgentEnvRunner:
    def sample(self):
        return 2

@ray.remote(num_cpus=0)
class Worker:
    def write(self):
        pass

@ray.remote(num_cpus=0)
class Monitor:
    def __init__(self):
        self.worker = Worker.remote()
    def look(self):
        ray.get(self.worker.write.remote())

@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self):
        self.envs = [SingleAgentEnvRunner.remote(), MultiAgentEnvRunner.remote()]
    def train(self):
        return ray.get([env.sample.remote() for env in self.envs])

@ray.remote(num_cpus=0)
def score(samples):
    return sum(samples)

env, monitor, trainer = SingleAgentEnvRunner.remote(), Monitor.remote(), Trainer.remote()
ray.get(env.sample.remote())
for step in range(6):
    ray.get(score.remote(trainer.train.remote()))
    ray.get(monitor.look.remote())
"""


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of a job whose actors make others, with the groups of docs/unmodified.md."""
    directory = tmp_path_factory.mktemp("nested")
    page = (Path(__file__).parents[2] / "docs" / "unmodified.md").read_text()
    (config,) = re.findall(r"```yaml.*?\n(.*?)```", page, re.DOTALL)
    (directory / "config.yaml").write_text(config)
    (directory / "job.py").write_text(NESTED)
    keys = ["worker_groups=Env,Trainer", "groups.Train.record=false", "ranks=[0,2]", "steps=[2,4]"]
    settings = [*NSIGHT, *(word for key in keys for word in ("--set", key))]
    words = ["--config", "config.yaml", "--set", "step_at=Trainer.train", "--", sys.executable]
    command = [*GPUPROF, *settings, *words, "job.py"]
    done = run(directory, command, RAY_ADDRESS=cluster.address())
    assert 0 == done.returncode, done.stderr
    return directory, done.stderr


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Its directory, and what it printed on both streams."""
    directory = tmp_path_factory.mktemp("job")
    (directory / "job.py").write_text(JOB)
    command = [*GPUPROF, "--", sys.executable, "job.py"]
    done = run(directory, command, RAY_ADDRESS=cluster.address())
    assert 0 == done.returncode, done.stderr
    return directory, done.stdout, done.stderr


@pytest.fixture(scope="module")
def answer(job: tuple[Path, str, str]) -> dict[str, Any]:
    """What `gpuprof explain` says of it."""
    done = run(job[0], [sys.executable, "-m", "gpuprof", "explain", "--json"])
    assert 0 == done.returncode, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_the_job_runs_as_alone(job: tuple[Path, str, str]) -> None:
    """With its own variables, and none that is meant for the driver."""
    assert "short 5 results" in job[1]
    for result in ([(None, "1")] * 3, ["2", "2"], [0, 1], [0, 10]):
        assert repr(result) in job[1].replace('"', "")


def test_each_actor_is_a_worker_of_its_classs_group(job: tuple[Path, str, str]) -> None:
    """Also one that an actor has made, and one of a queue; tasks are in a group of their own."""
    names = {file.name.split(".")[0] for file in job[0].glob("gpuprof-output/*/*/*.ledger")}
    assert {
        # then the one with a name, and that of the second cluster
        *(f"Env-{rank}" for rank in range(5)),
        *("Child-0", "Child-1", "Parent-0", "Asynchronous-0", "Asynchronous-1"),
        *("Tasks-0", "Program-0", "_QueueActor-0"),
    } == names


def test_its_steps_are_the_rounds_of_the_drivers_calls(answer: dict[str, Any]) -> None:
    """Found afterwards, without the first, whose beginning nobody knows."""
    assert 12 <= answer["steps"]["all"] <= 14
    called = {"Env.sample", "Parent.run", "Asynchronous.answer", "square", "Asynchronous.stream"}
    assert called == set(answer["steps"]["round"].removeprefix("the driver's calls: ").split(", "))


def test_the_slow_one_is_named(answer: dict[str, Any]) -> None:
    """With the scope in which it is slow."""
    first = answer["findings"][0]
    assert ("Env-2", "Env.sample") == (first["worker"], first["scope"])
    assert answer["bounds"].startswith("Env-2")


def test_an_actor_that_awaits_is_not_blamed_for_those_that_it_calls(
    answer: dict[str, Any],
) -> None:
    """It waits meanwhile, and its two calls at once do not add up."""
    (group,) = (group for group in answer["groups"] if group["group"] == "Asynchronous")
    assert "await" == group["scope"]
    assert group["work"] < 0.2 < group["waits"] < 0.9
    assert answer["confidence"]["explained"] > 0.9


def test_whatever_is_waited_for_has_been_released(job: tuple[Path, str, str]) -> None:
    """Calls, also of a queue, items of generators and tasks, by the keys that both sides have."""
    (run,) = job[0].glob("gpuprof-output/*")
    roles: dict[int, set[int]] = {WAITS: set(), RELEASES: set()}
    names = set()
    for ledger in ledgers(run)[0]:
        for row in ledger.links:
            name = ledger.places[row["place"]].key
            names.add(name)
            if name != "asyncio.sleep":  # its key is a time
                roles[int(row["role"])].add(int(row["key"]))
    assert set() == roles[WAITS] - roles[RELEASES]
    streams = {"Env.stream", "Asynchronous.stream"}
    assert {"ray.get", "ray.wait", "await", "_QueueActor.get", *streams} <= names


def test_what_the_job_ends_is_no_fault(job: tuple[Path, str, str], answer: dict[str, Any]) -> None:
    """An actor that it kills writes its record before."""
    assert [] == answer["ended_early"]
    assert "fault" not in job[2]
    assert "Parent.run" in job[2]


def test_trees_are_printed_at_the_end_of_a_cluster(job: tuple[Path, str, str]) -> None:
    """The driver's is the run's, for each of its clusters."""
    assert 2 == job[2].count("Runner (the driver) profile tree view")
    assert "Program-0 profile tree view" not in job[2]


@pytest.mark.nsys
def test_groups_are_renamed_merged_and_left_out(nested: tuple[Path, str]) -> None:
    """Whoever makes the actors; the driver's own name is no actor's."""
    files = nested[0].glob("gpuprof-output/*/*/*.ledger")
    assert {
        *("Env-0", "Env-1", "Env-2", "Trainer-0", "Scoring-0"),
        *("Program-0", "Worker-0"),  # the driver, and the actor that the left-out one makes
    } == {file.name.split(".")[0] for file in files}


@pytest.mark.nsys
def test_an_actor_that_another_actor_makes_is_captured(nested: tuple[Path, str]) -> None:
    """In the driver's steps, as those that the driver makes."""
    captured = {f"{name}.step-{step}" for name in ("Env-0", "Env-2", "Trainer-0") for step in "24"}
    assert captured == set(reports(nested[0]))
    assert "6 of 6 reports complete" in nested[1]


@pytest.mark.nsys
def test_a_rule_for_no_class_is_reported(nested: tuple[Path, str]) -> None:
    """At the end, when all classes are known."""
    assert (
        "groups: 'Train' matches none of Monitor, MultiAgentEnvRunner, SingleAgentEnvRunner, "
        "Tasks, Trainer, Worker; did you mean 'Trainer'?"
    ) in nested[1]


@pytest.mark.nsys
def test_a_driver_is_not_said_to_be_unprofiled(nested: tuple[Path, str]) -> None:
    """The groups are its actors'."""
    assert "--group" not in nested[1]


@pytest.mark.nsys
def test_the_drivers_tree_is_no_workers(nested: tuple[Path, str]) -> None:
    """It is the run's, and no rank of the group that the process has without Ray."""
    done = run(nested[0], [sys.executable, "-m", "gpuprof", "report", "--json"])
    assert 0 == done.returncode, done.stderr
    trees = set(json.loads(done.stdout))
    assert {"Env, 3 processes", "Runner", "Scoring", "Trainer", "Worker"} <= trees
    assert "Program" not in trees


def test_the_readmes_loop_gets_the_readmes_answer(tmp_path: Path) -> None:
    """As it stands there, in a program that leaves it to Ray to start with the first actor."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (loop, *_) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "job.py").write_text(AROUND_THE_README + loop)
    done = run(tmp_path, [*GPUPROF, "--", sys.executable, "job.py"])
    assert 0 == done.returncode, done.stderr
    said = run(tmp_path, [sys.executable, "-m", "gpuprof", "explain"]).stdout
    ranks = re.findall(r"^(Env|Learner) +(\d+) ", said, re.MULTILINE)
    assert [("Env", "3"), ("Learner", "1")] == ranks
    words = " ".join(said.split())
    for expected in (
        "A step is a round of the driver's calls: Env.sample, Learner.train, Learner.sync.",
        "bounds a step: Env-1 ",
        "would help: if Env-1 were as fast as the others' median, the run would take",
    ):
        assert expected in words
        assert expected in " ".join(readme.split())

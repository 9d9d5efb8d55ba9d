"""Jobs of other libraries, none of which knows gpuprof, under `gpuprof run`.

In each something is slow that only its user can have made so.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from gpuprof._analysis import reading
from support import cluster
from support.launched import run

PROGRAMS = Path(__file__).parent / "programs"
GPUPROF = ["gpuprof", "run", "--"]
TORCHRUN = ["torchrun", "--nproc-per-node", "2"]
ACCELERATE = ["accelerate", "launch", "--cpu", "--num_processes", "1"]


class Job(NamedTuple):
    """A job that has run with gpuprof and without.

    Args:
        workers: names of the workers that have left a ledger.
        answer: of `gpuprof explain`.
        results: what it printed alone, and what with gpuprof.
        log: what it wrote to stderr with gpuprof.
        run: the run's directory.
    """

    workers: set[str]
    answer: dict[str, Any]
    results: tuple[str, str]
    log: str
    run: Path

    def check(self, workers: set[str], worker: str, scope: str) -> None:
        """Compare its results and its workers, and the first line of `gpuprof explain`."""
        expected, actual = self.results
        assert expected == actual
        assert "not recorded; the job goes on" not in self.log
        assert "switched off" not in self.log
        assert workers == self.workers
        assert re.match(rf"{worker} \d+ % \({re.escape(scope)} ", self.answer["bounds"])


def result(directory: Path, command: list[str]) -> tuple[str, str]:
    """Run a program; the line that says its result, and its stderr."""
    place = cluster.make()
    variables = {
        "HF_HOME": place,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",  # a token would be a file in the home directory
        "RAY_DIRECTORY": place,
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = run(directory, [*command, str(directory)], **variables)
    assert 0 == done.returncode, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("result "))
    return line, done.stderr


class Start(Protocol):
    """Runs a program with its arguments, behind a launcher if it needs one."""

    def __call__(self, name: str, *arguments: str, launcher: list[str] | None = None) -> Job: ...


@pytest.fixture
def job(tmp_path: Path) -> Start:
    """Runs a command with gpuprof and without."""

    def start(name: str, *arguments: str, launcher: list[str] | None = None) -> Job:
        command = [*(launcher or [sys.executable]), str(PROGRAMS / name), *arguments]
        alone, recorded = tmp_path / "alone", tmp_path / "recorded"
        for directory in (alone, recorded):
            directory.mkdir()
        expected, _ = result(alone, command)
        actual, log = result(recorded, [*GPUPROF, *command])
        files = recorded.glob("gpuprof-output/*/*/*.ledger")
        workers = {file.name.split(".")[0] for file in files}
        asked = run(recorded, ["gpuprof", "explain", "--json"])
        answer = json.loads(asked.stdout) if not asked.returncode else {}
        (directory,) = recorded.glob("gpuprof-output/*-*")
        return Job(workers, answer, (expected, actual), log, directory)

    return start


def test_transformers_in_one_process(job: Start) -> None:
    """The user's slow callback is named, and a step is one of the Trainer's."""
    done = job("transformers_trainer.py", "callback")
    done.check({"Program-0"}, "Program-0", "Sleepy.on_step_end")
    assert 13 == done.answer["steps"]["all"]


def test_transformers_under_torchrun(job: Start) -> None:
    """With `gpuprof run` in front of torchrun: each rank is recorded, and the slow loader named."""
    done = job("transformers_trainer.py", "loader", launcher=TORCHRUN)
    done.check({"Worker-0", "Worker-1"}, "Worker-1", "DataLoader.next")
    assert 13 == done.answer["steps"]["all"]


def test_transformers_under_accelerate(job: Start) -> None:
    """With `gpuprof run` in front of `accelerate launch`."""
    done = job("transformers_trainer.py", "callback", launcher=ACCELERATE)
    done.check({"Program-0"}, "Program-0", "Sleepy.on_step_end")


def test_fsdp_under_torchrun(job: Start) -> None:
    """The others wait in a collective for the rank that prepares its batch."""
    done = job("fsdp.py", launcher=TORCHRUN)
    assert {"Worker-0", "Worker-1"} == done.workers
    expected, actual = done.results
    assert expected == actual
    assert re.match(
        r"Worker-0 \d+ % \(outside any scope, slow at fsdp.py:13\)", done.answer["bounds"]
    )


def test_lightning_on_two_processes(job: Start) -> None:
    """Lightning starts rank 1 itself, which is recorded, too, and named for its slow forward."""
    done = job("lightning_fit.py")
    done.check({"Program-0", "Program-1"}, "Program-1", "forward")
    assert "Model.training_step" in done.log


def test_trl_grpo(job: Start) -> None:
    """The user's slow reward function is named, as TRL calls it, and each sample is recorded."""
    done = job("trl_grpo.py")
    done.check({"Program-0"}, "Program-0", "GRPOTrainer.score")
    samples = reading.read(done.run).samples
    counts = {name: samples.count(name) for name in samples.names}
    assert {"generate": 48, "reward": 48, "trained": 48} == counts
    assert 48 == len(samples.ids)
    generated, trained = samples.of("generate"), samples.of("trained")
    assert 1 <= samples.notes["tokens"][generated].min()
    assert 8 == samples.notes["tokens"][generated].max()
    versions = samples.notes["version"]
    made = dict(zip(samples.sample[generated], versions[generated], strict=True))
    pairs = Counter(zip(map(made.get, samples.sample[trained]), versions[trained], strict=True))
    # each batch of eight is trained in two halves, the second of which is one version behind
    assert {(step - step % 2, step): 4 for step in range(12)} == pairs


def test_rllib_ppo(job: Start) -> None:
    """An iteration is a step, and the slow environment's runner is named."""
    done = job("rllib.py", "ppo")
    workers = {f"SingleAgentEnvRunner-{rank}" for rank in range(2)}
    done.check(workers | {"Program-0"}, "SingleAgentEnvRunner-1", "SingleAgentEnvRunner.sample")
    assert 14 == done.answer["steps"]["all"]


@pytest.mark.parametrize("algorithm", ["appo", "impala"])
def test_rllib_asynchronous(job: Start, algorithm: str) -> None:
    """Each update of the learner is a step, which waits for the environments."""
    done = job("rllib.py", algorithm)
    expected, actual = done.results
    assert expected == actual
    learner = f"{algorithm.upper()}TorchLearner-0"
    assert {learner, "SingleAgentEnvRunner-0", "SingleAgentEnvRunner-1"} <= done.workers
    assert done.answer["steps"]["all"]
    assert done.answer["bounds"].startswith("SingleAgentEnvRunner")


def test_ray_train(job: Start) -> None:
    """Steps are those of the optimizer in the workers, of which rank 1 has a slow loader."""
    done = job("ray_train.py")
    workers = {"Program-0", "RayTrainWorker-0", "RayTrainWorker-1", "TrainController-0"}
    done.check(workers, "RayTrainWorker-1", "DataLoader.next")


def test_ray_tune(job: Start) -> None:
    """A trial is a worker of a group that has its function's name, and the slow line is named."""
    done = job("tune.py")
    expected, actual = done.results
    assert expected == actual
    assert {"trial-0", "trial-1", "Program-0"} == done.workers
    assert "see tune.py:16, where trial-1 spends that time" == done.answer["helps"]

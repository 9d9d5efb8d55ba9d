"""Released Sample Factory with gpuprof: `make test-frameworks`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.frameworks import Framework, InstrumentChecks, OwnTestChecks
from support.report_reader import labels
from support.waiting import DEADLINE

SAMPLE_FACTORY = Framework(
    package="sample_factory",
    tried="2.1.1",
    scopes={"step", "train", "sample", "failing", "kept"},
    own_tests=("tests/test_utils.py",),
)
pytestmark = SAMPLE_FACTORY.needed


class TestInstruments(InstrumentChecks):
    """`timeit`, `add_time` and `time_avg`."""

    framework = SAMPLE_FACTORY


COMPONENTS = {
    "Runner": "main_loop",
    "Learner 0": "train",
    "Batcher 0": "batching",
    "InferenceWorker_p0-w0": "one_step",
    "RolloutWorker_w0": "env_step",
}
"""Each with one of its scopes."""
TRAIN = (
    *("-m", "sf_examples.train_gym_env", "--env=CartPole-v1", "--experiment=test", "--device=cpu"),
    *("--train_for_env_steps=200", "--num_workers=1", "--num_envs_per_worker=1", "--batch_size=64"),
    # with the other sampling it does not work with NumPy 2
    *("--worker_num_splits=1", "--recurrence=1", "--use_rnn=False", "--batched_sampling=True"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the run of one short training in several processes."""
    place = tmp_path_factory.mktemp("training")
    profiler = ("--set", "backend=nsight", "--set", "nsight.preset=light")
    command = ["-m", "gpuprof", "run", "--integrate", "sample-factory", *profiler, "--"]
    done = subprocess.run(
        [sys.executable, *command, sys.executable, *TRAIN, f"--train_dir={place}"],
        env={**SAMPLE_FACTORY.environment(), "TMPDIR": str(place)},  # it leaves a folder there
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    (run,) = place.glob("gpuprof-output/*")
    return run


@pytest.mark.nsys
class TestTraining:
    """Sample Factory's own command: a learner, an inference worker and a rollout worker."""

    def test_components_have_their_own_names(self, trained: Path) -> None:
        """Their scopes are below them, whichever process they run in."""
        trees = [json.loads(file.read_text()) for file in trained.rglob("Program-0.*.json")]
        scopes = {
            (component["key"], scope["key"])
            for tree in trees
            for component in tree["timing"]["children"]
            for scope in component["children"]
        }
        assert set() == COMPONENTS.items() - scopes

    def test_the_report_has_the_ranges_of_every_component(self, trained: Path) -> None:
        """One report for the tree of processes."""
        (report,) = trained.rglob("*.nsys-rep")
        found: Counter[str] = labels(str(report))
        assert set() == {*COMPONENTS, *COMPONENTS.values()} - found.keys()


@SAMPLE_FACTORY.needs_checkout
class TestOwnTests(OwnTestChecks):
    """Of its utilities, `Timing` among them."""

    framework = SAMPLE_FACTORY

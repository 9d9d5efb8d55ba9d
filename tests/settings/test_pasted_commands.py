"""Overrides of a whole training command, and settings of another system than the one named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof.errors import ConfigError
from support.planning import parsed
from support.verl_examples import SHORT

RLINF = {
    "cluster": {"profiling": {"backend": "nsight", "worker_groups": "all", "steps": [3]}},
    "runner": {"logger": {"log_path": "logs"}},
    "env": {"train": {"num_envs": 8}},
}
NEMO = {"NRL_NSYS_WORKER_PATTERNS": "*policy*", "NRL_NSYS_PROFILE_STEP_RANGE": "3:5"}


@pytest.mark.parametrize(
    ("system", "settings", "override"),
    [
        ("verl", parsed(SHORT), "algorithm.adv_estimator=gae"),
        ("verl", parsed(SHORT), "data.train_files=['a.parquet','b.parquet']"),
        ("verl", parsed(SHORT), "actor_rollout_ref.model.path=Qwen/Qwen3-8B"),
        ("verl", parsed(SHORT), "+ray_kwargs.ray_init.num_cpus=8"),
        ("verl", parsed(SHORT), "~critic.optim"),
        ("rlinf", RLINF, "actor.model.precision=bf16"),
        ("rlinf", RLINF, "env.train.num_envs=16"),
        ("rlinf", RLINF, "algorithm.adv_type=gae"),
        ("nemo-rl", NEMO, "grpo.max_num_steps=10"),
        ("nemo-rl", NEMO, "cluster.num_nodes=2"),
    ],
)
def test_what_is_not_profiling(system: str, settings: Any, override: str) -> None:
    """It changes nothing."""
    workers = {"actor_rollout_ref": 1, "ActorGroup": 1, "dtensor_policy_worker": 1}
    plain = gpuprof.plan(settings, workers, system=system)
    assert any(row.profiled for row in plain.rows)
    assert str(plain) == str(gpuprof.plan(settings, workers, system=system, overrides=[override]))


def test_a_value_that_is_an_interpolation() -> None:
    """An override below it does not concern profiling, so it is not applied."""
    today = str(Path(__file__).with_name("verl_today.yaml"))
    override = "trainer.default_local_dir.x=1"
    assert gpuprof.plan(today, {"critic": 1}, system="verl", overrides=[override]).rows


def test_a_key_of_gpuprofs() -> None:
    """It is applied to the translation."""
    plan = gpuprof.plan(
        parsed(SHORT), {"critic": 1}, system="verl", overrides=["ranks=[5]", "groups={}"]
    )
    assert not plan.rows[0].profiled


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("max_windws=3", "max_windws: unknown key; did you mean 'max_windows'?"),
        (
            "global_profilr.steps=[1]",
            "global_profilr: unknown key; did you mean 'global_profiler'?",
        ),
        (
            "actor_rollout_ref.actor.profilr.enable=true",
            "actor_rollout_ref.actor.profilr: unknown key; did you mean 'profiler'?",
        ),
    ],
)
def test_a_misspelt_key(override: str, problem: str) -> None:
    """One that looks like a key of gpuprof's or of the system's profiler is no training's."""
    with pytest.raises(ConfigError) as caught:
        gpuprof.plan(parsed(SHORT), {"critic": 1}, system="verl", overrides=[override])
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("system", "settings", "likely"),
    [
        ("verl", RLINF, "rlinf"),
        ("rlinf", parsed(SHORT), "verl"),
        ("nemo-rl", parsed(SHORT), "verl"),
        ("verl", {"backend": "none"}, "gpuprof"),
    ],
)
def test_settings_of_another_system(system: str, settings: Any, likely: str) -> None:
    """The error names the one that they look like."""
    with pytest.raises(ConfigError) as caught:
        gpuprof.plan(settings, {"critic": 1}, system=system)
    assert [
        (
            f"configuration: looks like settings of {likely}, not of {system}; to read it as such, "
            f"give --from {likely} (system={likely!r})"
        )
    ] == list(caught.value.problems)


def test_the_hint_comes_before_values_that_cannot_be_resolved() -> None:
    """A file of verl's has ``???`` and interpolations."""
    with pytest.raises(ConfigError) as caught:
        gpuprof.plan(str(Path(__file__).with_name("verl_today.yaml")), {"critic": 1})
    [problem] = caught.value.problems
    assert "looks like settings of verl" in problem

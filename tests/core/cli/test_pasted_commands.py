"""Training command lines, pasted behind ``gpuprof plan``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from gpuprof._cli import main
from support.verl_examples import SHORT

RLINF = """
cluster: {num_nodes: 1, profiling: {backend: nsight, worker_groups: [ActorGroup]}}
runner: {logger: {log_path: logs}}
"""
OVERRIDES = {
    "verl": "algorithm.adv_estimator=gae global_profiler.steps=[7]",
    "rlinf": "actor.model.precision=bf16 +cluster.profiling.steps=[7]",
}
WORKERS = {"verl": "actor_rollout_ref=2:1", "rlinf": "ActorGroup=2:1"}


def plan(*words: str) -> str:
    """What the command prints."""
    result = CliRunner().invoke(main, ["plan", *words])
    assert 0 == result.exit_code, result.output
    return result.output


@pytest.mark.parametrize(
    ("system", "pasted"),
    [
        ("verl", "-m verl.trainer.main_ppo"),
        ("verl", "python3 -m verl.trainer.main_ppo --config-path=config --config-name ppo"),
        ("verl", "python examples/train.py --config-name=ppo --config-path /configs"),
        ("rlinf", "/venv/bin/python3.11 train.py --config-path configs --config-name maniskill"),
        ("rlinf", "python train.py --config configs/other.yaml"),
        ("rlinf", "bash examples/embodiment/run_embodiment.sh libero_10"),
        ("verl", "-- python3 -m verl.trainer.main_ppo --config-name ppo"),
        ("verl", "uv run train.py --config-name=ppo"),
    ],
)
def test_what_starts_the_training_is_dropped(system: str, pasted: str, tmp_path: Path) -> None:
    """The plan is that of the overrides alone."""
    file = tmp_path / "composed.yaml"
    file.write_text({"verl": SHORT, "rlinf": RLINF}[system])
    words = [str(file), "--from", system, "--workers", WORKERS[system]]
    overrides = OVERRIDES[system].split()
    alone = plan(*words, *overrides)
    assert "step-7" in alone
    assert alone == plan(*words, *pasted.split(), *overrides)


def test_a_command_alone_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """NeMo-RL's settings are in its environment."""
    monkeypatch.setenv("NRL_NSYS_WORKER_PATTERNS", "*policy*")
    monkeypatch.setenv("NRL_NSYS_PROFILE_STEP_RANGE", "7:8")
    words = ["--from", "nemo-rl", "--workers", "dtensor_policy_worker=2:1"]
    command = ["uv", "run", "examples/run_grpo_math.py", "grpo.max_num_steps=5"]
    assert "step-7" in plan(*words, *command)
    assert plan(*words, *command) == plan(*words, "--", *command)


def test_config_is_the_configuration_where_there_is_no_other(tmp_path: Path) -> None:
    """As for ``gpuprof run``."""
    file = tmp_path / "own.yaml"
    file.write_text("backend: none\nworker_groups: [Learner]\n")
    workers = ["--workers", "Learner=2"]
    assert plan(str(file), *workers) == plan("--config", str(file), *workers)


def test_the_configuration_of_nemo_rl_is_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has no settings of a profiler."""
    monkeypatch.setenv("NRL_NSYS_WORKER_PATTERNS", "*policy*")
    monkeypatch.setenv("NRL_NSYS_PROFILE_STEP_RANGE", "3:5")
    words = ["--from", "nemo-rl", "--workers", "dtensor_policy_worker=1:1"]
    pasted = "examples/run_grpo.py --config examples/configs/grpo.yaml grpo.max_num_steps=3"
    assert plan(*words) == plan(*words, *pasted.split())

"""`gpuprof explain`: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof._cli import main
from support.simulated_job import Job


def run(*words: Any) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["explain", *map(str, words)])


@pytest.fixture(scope="module")
def slow_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with a slow rank."""
    return Job("slow rank", seed=3, steps=24).write(tmp_path_factory.mktemp("runs") / "run")


def test_it_prints_all_parts(slow_rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lines that fit eighty columns."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(slow_rank).output.splitlines()
    heads = ["bounds a step:", "would help:", "Where the time goes", "Critical path", "Causes"]
    assert [] == [head for head in heads if not any(line.startswith(head) for line in lines)]
    assert [] == [line for line in lines if len(line) > 80]


def test_json_is_the_same_answer(slow_rank: Path) -> None:
    """As the page describes it."""
    found = json.loads(run(slow_rank, "--json").output)
    assert [("RolloutGroup-1", "rollout/predict")] == [
        (each["worker"], each["scope"]) for each in found["findings"]
    ]


def test_warm_up_can_be_given(slow_rank: Path) -> None:
    """Instead of being found."""
    found = json.loads(run(slow_rank, "--json", "--warmup", 4).output)
    assert [0, 1, 2, 3] == found["steps"]["warm_up"]


def test_a_step_can_be_chosen(slow_rank: Path) -> None:
    """Its path takes the place of the median's and the slowest one's."""
    assert "Critical path of step 7:" in run(slow_rank, "--step", 7).output


def test_a_damaged_ledger_is_named(slow_rank: Path, tmp_path: Path) -> None:
    """The rest is explained, and the exit code is 1."""
    made = Job(None, seed=1, steps=12).write(tmp_path / "run")
    (made / "node-0" / "EnvGroup-0.start-1.ledger").write_bytes(b"x")
    done = run(made)
    assert 1 == done.exit_code
    assert "EnvGroup-0.start-1.ledger: ignored: not a ledger" in done.output.replace("\n", " ")


def test_a_run_without_ledgers_is_refused(tmp_path: Path) -> None:
    """With the two reasons that it can have."""
    done = run(tmp_path)
    said = "the key ledger switched them off, or gpuprof did not run in the job"
    assert (2, True) == (done.exit_code, said in " ".join(done.output.split()))

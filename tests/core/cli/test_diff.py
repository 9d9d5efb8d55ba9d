"""`gpuprof diff` and `gpuprof baseline`, as a CI job uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gpuprof._cli import main
from support.simulated_pair import SimulatedJob

SLOW = {("ActorGroup-1", "actor/backward"): 1.5}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two equal runs, one with a slower scope, and one of few steps."""
    place = tmp_path_factory.mktemp("runs")
    SimulatedJob(1, steps=60).write(place / "a")
    SimulatedJob(2, steps=60).write(place / "b")
    SimulatedJob(3, slower=SLOW, steps=60).write(place / "slow")
    SimulatedJob(4, steps=10).write(place / "short")
    return place


def diff(runs: Path, *arguments: str) -> Result:
    """Run the command, with names of runs replaced by their directories."""
    words = [str(runs / word) if (runs / word).exists() else word for word in arguments]
    return CliRunner().invoke(main, ["diff", *words], env={"COLUMNS": "80"})


def test_equal_runs_exit_with_0(runs: Path) -> None:
    """And say from where on a change would have been seen."""
    done = diff(runs, "a", "b")
    assert 0 == done.exit_code
    assert "step > 5%: in order; with these runs, a change below +" in done.stdout


def test_a_slower_run_exits_with_1(runs: Path) -> None:
    """With the rank and the scope."""
    done = diff(runs, "a", "slow", "--fail-if", "actor/backward > 25%")
    assert 1 == done.exit_code
    assert "actor/backward > 25%: slower: ActorGroup-1 actor/backward +" in done.stdout


def test_a_change_that_may_be_chance_exits_with_0(runs: Path) -> None:
    """And is not called in order."""
    words = " ".join(diff(runs, "a", "slow", "--fail-if", "step > 16%").stdout.split())
    assert "step > 16%: not sure, so not failed: step +" in words


def test_two_single_runs_say_how_to_measure_chance(runs: Path, tmp_path: Path) -> None:
    """And a baseline of three runs has measured it."""
    file = str(tmp_path / "base.json")
    three = [str(runs / name) for name in ("a", "b", "slow")]
    CliRunner().invoke(main, ["baseline", *three, "-o", file])
    said = [
        " ".join(diff(runs, *w).stdout.split()) for w in (("a", "b"), ("--baseline", file, "b"))
    ]
    remedy = "Three runs measure it: gpuprof baseline RUN RUN RUN -o FILE"
    assert [True, False] == [remedy in each for each in said]


def test_too_few_steps_exit_with_2(runs: Path) -> None:
    """With how many are needed, and the tables."""
    done = diff(runs, "a", "short")
    assert 2 == done.exit_code
    printed = " ".join(done.stdout.split())
    assert "B (short) has 10 of 11 steps to compare, and 30 are needed" in printed
    assert "95 % interval" in printed


@pytest.mark.parametrize("other", ["b", "slow"])
def test_the_answer_fits_80_columns(runs: Path, other: str) -> None:
    """As every table does."""
    lines = diff(runs, "a", other).stdout.splitlines()
    assert [] == [line for line in lines if len(line) > 80]


def test_json_has_what_the_text_says(runs: Path) -> None:
    """And the same exit code."""
    done = diff(runs, "a", "slow", "--json")
    found = json.loads(done.stdout)
    assert (1, True) == (done.exit_code, found["slower"])
    assert f"{100 * (found['step']['ratio'] - 1):+.1f} %" in diff(runs, "a", "slow").stdout


def test_markdown_begins_with_the_verdict(runs: Path) -> None:
    """For the title of a comment."""
    assert diff(runs, "a", "b", "--markdown").stdout.startswith("### ✅ A step takes ")


def test_a_baseline_takes_the_place_of_a_run(runs: Path, tmp_path: Path) -> None:
    """Of several runs, say."""
    file = str(tmp_path / "base.json")
    made = CliRunner().invoke(main, ["baseline", str(runs / "a"), str(runs / "b"), "-o", file])
    assert (0, f"{file}: 2 runs, ") == (
        made.exit_code,
        made.stdout.partition(" runs, ")[0] + " runs, ",
    )
    assert [0, 1] == [diff(runs, "--baseline", file, name).exit_code for name in ("a", "slow")]


def test_a_baseline_of_few_steps_is_refused(runs: Path, tmp_path: Path) -> None:
    """Every comparison with it would be."""
    file = tmp_path / "base.json"
    done = CliRunner().invoke(main, ["baseline", str(runs / "short"), "-o", str(file)])
    assert (2, False) == (done.exit_code, file.exists())
    assert "no baseline: short has 10 of 11 steps to compare, and 30 are needed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["a"], "expected two runs, A and B"),
        (["a", "b", "--baseline", "base.json"], "expected one run beside --baseline"),
    ],
)
def test_the_number_of_runs_is_checked(runs: Path, arguments: list[str], wanted: str) -> None:
    """Before anything is read."""
    done = diff(runs, *arguments)
    assert 2 == done.exit_code
    assert wanted in done.stderr

"""`gpuprof explain`: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof._artifacts.alive import this_process
from gpuprof._cli import main
from support.run_files import run_file
from support.simulated_job import Job
from support.simulated_run import SimulatedLedger

SECOND = 10**9


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


def test_it_names_the_page_on_what_it_cannot_know(slow_rank: Path) -> None:
    """A reader who is about to believe it finds the blind spots."""
    page = "docs/blind-spots.md"
    assert (Path(__file__).parents[3] / page).is_file()
    assert f"Blind spots: {page}." in run(slow_rank).output


def test_warm_up_can_be_given(slow_rank: Path) -> None:
    """Instead of being found."""
    found = json.loads(run(slow_rank, "--json", "--warmup", 4).output)
    assert [0, 1, 2, 3] == found["steps"]["warm_up"]


def test_a_step_can_be_chosen(slow_rank: Path) -> None:
    """Its path takes the place of the median's and the slowest one's."""
    assert "Critical path of step 7:" in run(slow_rank, "--step", 7).output


@pytest.mark.parametrize(
    ("lives", "says"),
    [
        (True, "`gpuprof stacks run` shows what its processes do now."),
        (False, "It has no end: it was killed, and what its processes did last may be missing."),
    ],
)
def test_a_run_that_has_not_ended_says_so(lives: bool, says: str, tmp_path: Path) -> None:
    """As its driver tells, which lives or is gone."""
    made = unfinished(tmp_path / "run", ended=False)
    driver = {**this_process(), "start": this_process()["start"] if lives else "0"}
    (made / "run.json").write_text(json.dumps(run_file("run", driver=driver)))
    assert says in " ".join(run(made).output.split())


def test_ranks_that_have_ended_need_no_manifest(tmp_path: Path) -> None:
    """Under torchrun nobody writes one."""
    made = unfinished(tmp_path / "run", ended=True)
    (made / "run.json").write_text(json.dumps(run_file("run")))
    assert "ended" == json.loads(run(made, "--json").output)["state"]


def unfinished(directory: Path, ended: bool) -> Path:
    """A run of a rank without a manifest, whose ledger has an end or not."""
    worker = SimulatedLedger("A-0")
    for step in range(12):
        worker.span("work", step * SECOND, step * SECOND + SECOND // 2)
        worker.step(step, step * SECOND, (step + 1) * SECOND)
    worker.write(directory, ended=ended)
    return directory


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


@pytest.fixture(scope="module")
def given_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two ranks that say what their steps have; one is killed."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    for rank in range(2):
        made = SimulatedLedger(f"Trainer-{rank}")
        for number in range(10):
            start = number * 2 * SECOND
            made.step(number, start, start + 2 * SECOND)
            made.span("train", start, start + 2 * SECOND)
            made.attributes(
                number, start + 2 * SECOND, tokens=5_000, buffer=number, flops=6e14, peak_flops=1e15
            )
        if rank:
            made.sample("prompt-7", "generate", 15 * SECOND, None)
        made.write(directory)
    return directory


@pytest.mark.parametrize(
    "line",
    [
        "tokens: 10,000 a step, 5,000 a second",
        "buffer: 4.5 in a step (0 to 9)",
        "MFU: 30 %",
        "samples that never ended: 1: prompt-7 in generate of Trainer-1.",
    ],
)
def test_what_the_job_gave_is_printed(given_run: Path, line: str) -> None:
    """Tokens and operations are those of all ranks, and a buffer is one of them."""
    assert line in run(given_run).output.splitlines()

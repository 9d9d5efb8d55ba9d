"""Workers that were killed or crashed are named, with the step of their last record."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from gpuprof._artifacts import early_ends, runs
from gpuprof._artifacts.formats import EarlyEnd
from gpuprof._artifacts.receipt import Receipt
from gpuprof._artifacts.records import NodeRecord, Start, read_node
from gpuprof._cli import main
from gpuprof._config.load import load
from support.run_files import manifest, run_file, session_file
from support.simulated_run import SimulatedLedger

MS = 1_000_000


def record(*, over: bool, process: int | None) -> NodeRecord:
    """A node with the one start of worker A-0."""
    session = session_file(over=over)
    start = Start("A", 0, "1", session, None, process=process)
    return NodeRecord("node-0", "/run/node-0", (start,), {})


@pytest.mark.parametrize(
    ("over", "process", "expected"),
    [(False, None, ["A-0"]), (True, None, []), (False, 7, []), (True, 7, [])],
)
def test_a_worker_that_wrote_no_last_word_was_killed(
    over: bool, process: int | None, expected: list[str]
) -> None:
    """One that still lives was not, nor one that ended in good order."""
    found = early_ends.ended_early([record(over=over, process=process)])
    assert expected == [each.start.name for each in found]


def test_a_worker_that_was_started_again_says_so() -> None:
    """Its figures lack the last seconds of the first start all the same."""
    first = record(over=False, process=None)
    second = Start("A", 0, "2", session_file(over=True), None)
    found = early_ends.ended_early([attrs.evolve(first, starts=(*first.starts, second))])
    (sentence,) = early_ends.sentences(early_ends.entries("/nonexistent", found))
    assert "killed or crashed, and started again: the last seconds may be missing" in sentence


def test_a_worker_without_a_session_is_not_named() -> None:
    """Nobody knows what it would have written."""
    start = Start("A", 0, "1", None, None)
    assert [] == early_ends.ended_early([NodeRecord("n", "/run/n", (start,), {})])


def killed_in(directory: Path, step: int) -> Path:
    """A run of four steps in which A-0 was killed in one of them."""
    driver, worker = SimulatedLedger("Runner", "driver"), SimulatedLedger("A-0")
    for number in range(4):
        driver.step(number, number * 100 * MS, (number + 1) * 100 * MS)
        if number <= step:
            worker.span("work", (number * 100 + 10) * MS, (number * 100 + 50) * MS)
    driver.write(directory)
    worker.write(directory, ended=False)
    return directory


def test_the_step_is_that_of_the_last_record(tmp_path: Path) -> None:
    """As the driver counts steps."""
    ended = early_ends.ended_early([record(over=False, process=None)])
    (entry,) = early_ends.entries(str(killed_in(tmp_path, 2)), ended)
    assert EarlyEnd(worker="A-0", node="node-0", incarnation="1", step=2, restarted=False) == entry


def test_without_a_ledger_the_step_is_not_known(tmp_path: Path) -> None:
    """The sentence leaves it out."""
    ended = early_ends.ended_early([record(over=False, process=None)])
    entries = early_ends.entries(str(tmp_path), ended)
    assert [
        "A-0 ended early on node node-0, killed or crashed: the last seconds may be missing"
    ] == early_ends.sentences(entries)


def test_many_workers_are_one_sentence() -> None:
    """A node that dies takes all of its workers."""
    entries = [
        EarlyEnd(worker=f"A-{n}", node="n0", incarnation="1", step=3, restarted=False)
        for n in range(7)
    ]
    (sentence,) = early_ends.sentences(entries)
    assert sentence.startswith("A-0, A-1, A-2, A-3, A-4 and 2 more ended early on node n0, killed")


def test_gpuprof_runs_names_them(tmp_path: Path) -> None:
    """Beside the count of reports."""
    directory = tmp_path / "run"
    (directory / "node-0").mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps(run_file("run")))
    early = [EarlyEnd(worker="A-0", node="n", incarnation="1", step=3, restarted=False)]
    about = manifest("run", Receipt((), str(directory)).to_dict())
    (directory / "manifest.json").write_text(json.dumps({**about, "ended_early": early}))
    (found,) = runs.runs(str(tmp_path))
    assert "no report expected; A-0 ended early" == found.state


def collected(directory: Path, driven: bool) -> str:
    """What `gpuprof collect` prints of a run whose only worker was killed."""
    settings = {"backend": "none", "output_dir": str(directory.parent)}
    about = runs.begin(str(directory), directory.name, load(settings), driven)
    if about["driver"] is not None:
        about["driver"]["start"] = "1"  # it has died
        (directory / "run.json").write_text(json.dumps(about))
    node = Path(read_node(str(directory)).directory)
    node.mkdir()
    (node / "A-0.start-1.json").write_text(json.dumps(session_file(over=False)))
    return CliRunner().invoke(main, ["collect", str(directory)]).output


def test_collect_names_a_rank_that_was_killed(tmp_path: Path) -> None:
    """Under `gpuprof run`, where no driver could."""
    directory = tmp_path / "run"
    directory.mkdir()
    assert "fault: A-0 ended early on node" in collected(directory, driven=False)
    about = runs.about(directory)
    assert about is not None
    assert about.ended_early is not None
    assert ["A-0"] == [each["worker"] for each in about.ended_early]


def test_a_driver_that_died_took_its_workers_with_it(tmp_path: Path) -> None:
    """Nobody is named for that."""
    directory = tmp_path / "run"
    directory.mkdir()
    assert "ended early" not in collected(directory, driven=True)

"""`gpuprof report`: which run it shows, which files it reads, and how wide its tables are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof._artifacts import runs
from gpuprof._artifacts.formats import FileState
from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import Receipt, ReceiptRow
from gpuprof._cli import main
from gpuprof._config.load import load
from gpuprof._report.ranges import gone
from gpuprof_timing import Timing
from support.json_output import faults
from support.manual_clock import Clock
from support.run_files import manifest, session_file

LONG = "a-scope-with-a-name-that-nobody-would-want-to-read-in-a-table-of-a-terminal"


def run(*words: Any) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, list(map(str, words)))


def tree(key: str, seconds: float = 1.0, name: str = "A-0") -> Timing:
    """A tree with one scope, and a shorter one inside it."""
    clock = Clock()
    timing = Timing(name, clock=clock)
    with timing.add_time(key):
        clock.advance(seconds)
        with timing.add_time("inner"):
            clock.advance(seconds)
    return timing


def make_run(output_dir: Path, name: str, begun: float, *trees: Timing) -> Path:
    """A run with a session file for each tree."""
    directory = output_dir / name
    (directory / "node").mkdir(parents=True)
    runs.begin(str(directory), name, load({"backend": "none", "output_dir": str(output_dir)}))
    about = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**about, "begun": begun}))
    for rank, timing in enumerate(trees):
        session = session_file(name=f"A-{rank}", run=name, group="A", timing=timing.to_dict())
        (directory / "node" / f"A-{rank}.start-1.json").write_text(json.dumps(session))
    return directory


@pytest.fixture
def two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output directory in which the run that began last is not the last by name."""
    monkeypatch.setenv("GPUPROF_OUTPUT_DIR", str(tmp_path / "out"))
    make_run(tmp_path / "out", "a", 2.0, tree("newer"))
    make_run(tmp_path / "out", "b", 1.0, tree("older"))
    return tmp_path / "out"


@pytest.mark.parametrize("words", [[], ["latest"], ["a"]])
def test_a_run_is_found_by_name_or_as_the_last_one(two_runs: Path, words: list[str]) -> None:
    """Without arguments, the one that began last."""
    shown = run("report", *words)
    assert "newer" in shown.stdout
    assert "older" not in shown.stdout


def test_the_last_run_is_named(two_runs: Path) -> None:
    """On stderr, so that JSON stays JSON."""
    shown = run("report", "--json")
    assert f"run: {two_runs / 'a'}\n" == shown.stderr
    assert ["A"] == list(json.loads(shown.stdout))


def test_its_json_fits_the_schema(two_runs: Path) -> None:
    """And has no key that the schema lacks."""
    assert [] == faults("report", json.loads(run("report", "--json").stdout))


def test_the_runs_are_looked_for_where_the_configuration_puts_them(
    two_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of GPUPROF_CONFIG, unless the option or the variable names another directory."""
    monkeypatch.delenv("GPUPROF_OUTPUT_DIR")
    (tmp_path / "config.yaml").write_text(f"backend: none\noutput_dir: {two_runs}\n")
    monkeypatch.setenv("GPUPROF_CONFIG", str(tmp_path / "config.yaml"))
    assert "newer" in run("report").stdout


def test_a_run_that_is_not_there_is_refused(two_runs: Path, tmp_path: Path) -> None:
    """With the directory that was searched, and how to see what is in it."""
    refused = run("report", "c")
    assert (2, f"c: no such file, and no such run in {two_runs}; gpuprof runs lists the runs") == (
        refused.exit_code,
        refused.stderr.strip().removeprefix("gpuprof: "),
    )
    empty = run("report", "--output-dir", tmp_path / "empty")
    assert f"no runs in {tmp_path / 'empty'}; --output-dir or" in empty.stderr


def test_a_file_of_the_timing_library_is_read(tmp_path: Path) -> None:
    """What `write_at_exit` leaves, and what `to_dict` gives; trees of one name are merged."""
    code = (
        "import sys; from gpuprof_timing import Timing; timing = Timing('Learner'); "
        "timing.write_at_exit(sys.argv[1])\nwith timing.add_time('train'): pass"
    )
    for name in ("0", "1"):
        subprocess.run([sys.executable, "-c", code, tmp_path / f"{name}.json"], check=True)
    (tmp_path / "other.json").write_text(json.dumps(tree("mine", name="Other").to_dict()))
    shown = run("report", tmp_path).stdout
    assert ["Learner, 2 processes", "Other"] == [
        line for line in shown.splitlines() if line.startswith(("Learner", "Other"))
    ]
    assert "train" in run("report", tmp_path / "0.json").stdout


def test_a_damaged_file_of_the_timing_library_is_named(tmp_path: Path) -> None:
    """As is one of another release."""
    content = tree("mine").to_dict()
    (tmp_path / "good.json").write_text(json.dumps(content))
    (tmp_path / "bad.json").write_text(json.dumps({**content, "version": 99}))
    shown = run("report", tmp_path)
    assert 1 == shown.exit_code
    assert f"{tmp_path / 'bad.json'}: cannot be read" in shown.stderr


def test_signs_are_explained(tmp_path: Path) -> None:
    """Those that a table has, and no others."""
    data = tree("outer", name="P").to_dict()
    data["children"][0]["children"][0]["total"] *= 5  # as of children in threads
    (tmp_path / "parallel.json").write_text(json.dumps(data))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "plain.json").write_text(json.dumps(tree("outer").to_dict()))
    shown = run("report", tmp_path / "parallel.json").stdout
    assert "∥: the scopes inside ran in parallel" in shown
    assert "(other):" not in shown
    shown = run("report", tmp_path / "plain").stdout
    assert "% run: share of" in shown
    assert "(other): the scope's time outside" in shown
    assert "∥" not in shown


@pytest.fixture
def wide_names(tmp_path: Path) -> Path:
    """A run whose names are too long for any table."""
    directory = make_run(tmp_path, f"torchrun-{'b115ff00-' * 8}", 0.0, tree(LONG), tree(LONG, 2.0))
    file = str(directory / "node" / f"{LONG}.step-3.nsys-rep")
    rows = (
        ReceiptRow("A-0", "node", "step-3", file, 1024, "complete"),
        ReceiptRow("A-1", "node", "step-3", file, 0, "missing", Reason.FAILED, "reason " * 40),
    )
    receipt = Receipt(rows, str(directory)).to_dict()
    (directory / "manifest.json").write_text(json.dumps(manifest(directory.name, receipt)))
    return directory


@pytest.mark.parametrize(
    "words",
    [["report"], ["runs"], ["backends"], ["backends", "--options", "nsight"]],
    ids=" ".join,
)
def test_every_table_fits_80_columns(wide_names: Path, words: list[str]) -> None:
    """Where no terminal says otherwise."""
    environment = {"GPUPROF_OUTPUT_DIR": str(wide_names.parent), "COLUMNS": ""}
    shown = CliRunner(env=environment).invoke(main, words).stdout
    assert "---" in shown
    assert [] == [line for line in shown.splitlines() if len(line) > 80 and os.sep not in line]


def test_wide_shows_all_that_was_left_out(wide_names: Path) -> None:
    """Names in full and every column; the narrow table says so."""
    narrow, wide = run("report", wide_names), run("report", "--wide", wide_names)
    assert LONG not in narrow.stdout
    assert "--wide shows everything" in narrow.stdout
    assert LONG in wide.stdout
    assert {"calls", "min", "max", "std", "slowest"} <= set(wide.stdout.splitlines()[1].split())


def test_a_receipt_fits_80_columns() -> None:
    """Long files are cut at their start, long reasons stand below their rows."""
    rows = tuple(
        ReceiptRow(
            f"A-{n}", "n", "step-3", f"/o/r/n/{LONG}.{n}.rep", 0, "missing", cause, "x " * 90
        )
        for n, cause in enumerate((Reason.FAILED, Reason.DAMAGED))
    )
    lines = Receipt(rows, "/o/r").table().splitlines()
    assert 80 >= max(map(len, lines))
    assert [True, True] == [any(f".{n}.rep" in line for line in lines) for n in range(2)]


def test_a_complete_report_that_is_gone_is_named(tmp_path: Path) -> None:
    """By the run's present directory; what lies outside it is still on its node."""
    ours = make_run(tmp_path, "a", 1.0)
    (ours / "node" / "A-0.rep").write_text("here")
    places = ["/was/a/node/A-0.rep", "/was/a/node/A-1.rep", "/staged/A-2.rep", None]
    states: list[FileState] = ["complete", "complete", "complete", "missing"]
    rows = [
        ReceiptRow(f"A-{rank}", "node", "step-3", place, 1, state)
        for rank, (place, state) in enumerate(zip(places, states, strict=True))
    ]
    rows.append(ReceiptRow("A-4", "node", "step-3", "/was/a/node/A-4.rep", 1, "missing"))
    receipt = Receipt(tuple(rows), "/was/a").to_dict()
    (ours / "manifest.json").write_text(json.dumps(manifest("a", receipt)))
    elsewhere = tmp_path / "no run"
    elsewhere.mkdir()
    expected = [f"{ours / 'node' / 'A-1.rep'}: missing; the receipt lists it as complete"]
    assert expected == gone([str(elsewhere), str(ours)])


def test_a_run_without_a_manifest_misses_no_report(tmp_path: Path) -> None:
    """Nobody knows yet which it was to have; a damaged one is named."""
    ours = make_run(tmp_path, "a", 1.0)
    assert [] == gone([str(ours)])
    (ours / "manifest.json").write_text("{")
    (fault,) = gone([str(ours)])
    assert fault.startswith(f"{ours / 'manifest.json'}: ")

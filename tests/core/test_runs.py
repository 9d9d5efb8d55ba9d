"""`gpuprof runs`, `clean` and `collect`, on directories as runs leave them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof import _runs
from gpuprof._cli import main
from gpuprof._config import load
from gpuprof._scratch import process_start
from gpuprof.errors import OutputError

DAY = 86400.0


def make_run(output_dir: Path, name: str, *, begun: float = 0.0, states: list[str] | None = None) -> Path:
    """A run; with `states` of its reports it has ended."""
    directory = output_dir / name
    (directory / "node").mkdir(parents=True)
    (directory / "node" / "A-0.step-3.nsys-rep").write_bytes(b"report")
    _runs.begin(str(directory), name, load({"backend": "none", "output_dir": str(output_dir)}))
    word = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**word, "begun": begun}))
    if states is not None:
        manifest = {"version": 1, "run": name, "backend": "nsight", "receipt": {"rows": [{"state": state} for state in states]}}
        (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def run(*words: Any, answer: str = "") -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, list(map(str, words)), input=answer)


def test_runs_are_listed_by_age_with_what_they_left(tmp_path: Path) -> None:
    """The oldest is first; one without a manifest is said to have none; what is no run is left out."""
    make_run(tmp_path, "second", begun=2.0)
    make_run(tmp_path, "first", begun=1.0, states=["complete", "missing"])
    (tmp_path / "photos").mkdir()
    found = json.loads(run("runs", "--output-dir", tmp_path, "--json").stdout)
    assert ["first", "second"] == [entry["name"] for entry in found]
    assert "1 of 2 reports complete" == found[0]["state"]
    assert found[1]["state"].startswith("no receipt")
    assert all(entry["size"] > len(b"report") for entry in found)


def test_no_runs_are_said_to_be_none(tmp_path: Path) -> None:
    """An empty directory, and one that does not exist."""
    assert f"no runs in {tmp_path}\n" == run("runs", "--output-dir", tmp_path).stdout
    assert f"no runs in {tmp_path / 'x'}\n" == run("runs", "--output-dir", tmp_path / "x").stdout


HERE = os.uname().nodename
IT_RUNS, FINISHED = "it runs", "finished; gpuprof collect lists it"
UNKNOWN = "no receipt: it runs, or its driver died (gpuprof collect)"


def add_start(run: Path, node: str, *, alive: bool, settled: bool = False) -> None:
    """What a start of a worker leaves on its node, which is this process, or one that is gone."""
    private = run / node / ".gpuprof"
    private.mkdir(parents=True, exist_ok=True)
    who = {"group": "A", "rank": 0, "incarnation": "1", "pid": os.getpid(), "windows": [], "profiled": True}
    session = {**who, "process_start": process_start(os.getpid()) if alive else "1"}
    (run / node / "A-0.start-1.json").write_text(json.dumps(session))
    if settled:
        (private / "A-0.start-1.settled").write_text(json.dumps({"files": {}, "problems": []}))


@pytest.mark.parametrize(
    ("starts", "state"),
    [
        ([], UNKNOWN),
        ([(HERE, True, False)], IT_RUNS),
        ([(HERE, False, False)], FINISHED),
        ([(HERE, False, False), ("far", False, False)], UNKNOWN),
        ([(HERE, False, False), ("far", False, True)], FINISHED),
        ([(HERE, True, False), ("far", False, True)], IT_RUNS),
    ],
)
def test_a_run_without_a_driver_ends_with_its_processes(tmp_path: Path, starts: list[tuple[str, bool, bool]], state: str) -> None:
    """Those of this node can be seen; of others only what was settled is known to have ended."""
    directory = make_run(tmp_path, "a")
    for node, alive, settled in starts:
        add_start(directory, node, alive=alive, settled=settled)
    assert [state] == [found.state for found in _runs.runs(str(tmp_path))]


@pytest.mark.parametrize(
    ("driver", "state"), [({}, IT_RUNS), ({"start": "1"}, FINISHED), ({"node": "far"}, UNKNOWN)], ids=["alive", "dead", "far"]
)
def test_a_run_with_a_driver_ends_with_that(tmp_path: Path, driver: dict[str, str], state: str) -> None:
    """Its workers may lie on nodes that are not seen from here, and may be still to come."""
    (tmp_path / "a").mkdir()
    _runs.begin(str(tmp_path / "a"), "a", load({"backend": "none"}), driven=True)
    word = json.loads((tmp_path / "a" / "run.json").read_text())
    (tmp_path / "a" / "run.json").write_text(json.dumps({**word, "driver": {**word["driver"], **driver}}))
    add_start(tmp_path / "a", HERE, alive=False)
    assert [state] == [found.state for found in _runs.runs(str(tmp_path))]


def test_a_damaged_word_of_the_beginning(tmp_path: Path) -> None:
    """The run is listed by its manifest, and can be removed; `collect` says what it lacks."""
    directory = make_run(tmp_path, "a", states=["complete"])
    (directory / "run.json").write_text('{"version": 1, "run"')
    (found,) = json.loads(run("runs", "--output-dir", tmp_path, "--json").stdout)
    assert "1 of 1 reports complete" == found["state"]
    refused = run("collect", directory)
    assert (2, True) == (refused.exit_code, "run.json is missing or damaged" in refused.output)
    assert 0 == run("clean", "a", "--yes", "--output-dir", tmp_path).exit_code
    assert not directory.exists()


def test_the_output_directory_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs` and `clean` look where the runs of this shell go."""
    monkeypatch.setenv("GPUPROF_OUTPUT_DIR", str(tmp_path))
    make_run(tmp_path, "a")
    assert ["a"] == [entry["name"] for entry in json.loads(run("runs", "--json").stdout)]
    assert 0 == run("clean", "a", "--yes").exit_code
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("answer", "left"), [("y\n", ["b"]), ("n\n", ["a", "b"]), ("", ["a", "b"])])
def test_clean_asks(tmp_path: Path, answer: str, left: list[str]) -> None:
    """Only a yes removes."""
    for name in ("a", "b"):
        make_run(tmp_path, name)
    run("clean", "a", "--output-dir", tmp_path, answer=answer)
    assert left == sorted(path.name for path in tmp_path.iterdir())


def test_clean_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that began more days ago than that go, the others stay."""
    monkeypatch.setattr("time.time", lambda: 10 * DAY)
    make_run(tmp_path, "old", begun=1 * DAY)
    make_run(tmp_path, "new", begun=9 * DAY)
    assert 0 == run("clean", "--older-than", 5, "--yes", "--output-dir", tmp_path).exit_code
    assert ["new"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("words", [[], ["nobody"], ["a", "--older-than", "1"]])
def test_clean_is_told_what(tmp_path: Path, words: list[str]) -> None:
    """Without a name, with one that is no run, and with two ways at once nothing is removed."""
    make_run(tmp_path, "a")
    assert 2 == run("clean", *words, "--yes", "--output-dir", tmp_path).exit_code
    assert ["a"] == [path.name for path in tmp_path.iterdir()]


def test_what_is_no_run_is_never_removed(tmp_path: Path) -> None:
    """A directory without word of a run of its own name is left alone."""
    directory = make_run(tmp_path, "a")
    (found,) = _runs.runs(str(tmp_path))
    (directory / "run.json").unlink()
    with pytest.raises(OutputError, match="left alone"):
        _runs.remove(found)
    assert directory.is_dir()


def test_collect_lists_what_is_there(tmp_path: Path) -> None:
    """Where all is home, the manifest is written, with a checksum of each file."""
    directory = make_run(tmp_path, "a")
    done = run("collect", directory)
    assert f"0 of 0 reports complete, 0 B in all, in {directory}\n" == done.stdout
    (entry,) = json.loads((directory / "manifest.json").read_text())["files"]
    assert ("node", 6, hashlib.sha256(b"report").hexdigest()) == (entry["node"], entry["size"], entry["sha256"])


@pytest.mark.parametrize("words", [["nothing"], ["nothing", "--ray"]])
def test_collect_wants_the_directory_of_a_run(tmp_path: Path, words: list[str]) -> None:
    """What is none is refused before anything is connected to."""
    assert 2 == run("collect", tmp_path / words[0], *words[1:]).exit_code

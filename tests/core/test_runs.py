"""`gpuprof runs`, `clean` and `collect`, on directories as runs leave them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gpuprof import _runs
from gpuprof._cli import main
from gpuprof._config import load
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
    found = json.loads(run("runs", tmp_path, "--json").stdout)
    assert ["first", "second"] == [entry["name"] for entry in found]
    assert "1 of 2 reports complete" == found[0]["state"]
    assert found[1]["state"].startswith("no receipt")
    assert all(entry["size"] > len(b"report") for entry in found)


def test_no_runs_are_said_to_be_none(tmp_path: Path) -> None:
    """An empty directory, and one that does not exist."""
    assert f"no runs in {tmp_path}\n" == run("runs", tmp_path).stdout
    assert f"no runs in {tmp_path / 'x'}\n" == run("runs", tmp_path / "x").stdout


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

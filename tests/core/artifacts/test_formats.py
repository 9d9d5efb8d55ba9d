"""A file of a run that cannot be used is refused with its name, and the others are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpuprof._artifacts import formats, runs
from gpuprof._artifacts.formats import RUN_VERSION
from gpuprof._artifacts.records import read_node
from gpuprof._cli import main
from gpuprof._config.load import load
from gpuprof._session.file import SESSION_VERSION, SessionFile
from gpuprof.errors import OutputError
from support.run_files import run_file, session_file, settled, status, window_entry

FILES: dict[str, Callable[..., Any]] = {
    "A-0.start-1.json": session_file,
    ".gpuprof/A-0.start-1.tool": status,
    ".gpuprof/A-0.start-1.settled": settled,
}
DAMAGE = [
    ({"pid": "seven"}, "pid: 'seven' is not valid; expected an integer"),
    ({"windows": [window_entry(state="asleep")]}, "state: 'asleep' is not valid; expected planned"),
    ({"faults": "one"}, "faults: 'one' is not valid; expected a list"),
    ({"windows": [{**window_entry(), "closed": "yes"}]}, "closed"),
    ({"step_times": {}}, "step_times.inside: missing"),
]


def test_a_good_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Nothing is converted."""
    written = session_file(window_entry(), step=3)
    (tmp_path / "file").write_text(json.dumps(written))
    assert written == formats.read(tmp_path / "file", SessionFile, SESSION_VERSION)


@pytest.mark.parametrize(("changes", "problem"), DAMAGE)
def test_a_wrong_type_is_named_with_its_key(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    """The sentence begins with the file."""
    (tmp_path / "file").write_text(json.dumps(session_file(**changes)))
    with pytest.raises(OutputError) as raised:
        formats.read(tmp_path / "file", SessionFile, SESSION_VERSION)
    assert str(raised.value).startswith(f"{tmp_path / 'file'}: ignored: damaged: ")
    assert problem in str(raised.value)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("version", [None, "2024.1", 99])
def test_a_file_of_another_version_is_a_fault_of_its_node(
    tmp_path: Path, name: str, version: Any
) -> None:
    """The other worker's files are read."""
    (tmp_path / "node" / ".gpuprof").mkdir(parents=True)
    file = tmp_path / "node" / name
    file.write_text(json.dumps({**FILES[name](), "version": version}))
    (tmp_path / "node" / "A-1.start-1.json").write_text(json.dumps(session_file(rank=1)))
    record = read_node(str(tmp_path), "node")
    (fault,) = record.faults
    expected = FILES[name]()["version"]
    assert fault.startswith(f"{file}: ignored: version {version!r}; expected version {expected}. ")
    assert [1] == [start.rank for start in record.starts if start.session]


def test_other_json_files_are_no_sessions(tmp_path: Path) -> None:
    """As a backend's reports, the driver's tree and those of child processes."""
    (tmp_path / "node").mkdir()
    for name in ("Runner.json", "A-0.step-3.json", "A-0.child-7.json", "A-0.start-1.trace.json"):
        (tmp_path / "node" / name).write_text("[]")
    assert ((), ()) == (read_node(str(tmp_path), "node").faults, read_node(str(tmp_path)).starts)


def test_the_receipt_has_the_fault(tmp_path: Path) -> None:
    """Here as `gpuprof collect` writes it."""
    (tmp_path / "a" / "node").mkdir(parents=True)
    runs.begin(str(tmp_path / "a"), "a", load({"backend": "none", "output_dir": str(tmp_path)}))
    file = tmp_path / "a" / "node" / "A-0.start-1.json"
    file.write_text(json.dumps(session_file(version=1)))
    done = CliRunner().invoke(main, ["collect", str(tmp_path / "a")])
    assert f"fault: {file}: ignored: version 1; expected version {SESSION_VERSION}" in done.stdout
    written = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert written["receipt"]["faults"][0].startswith(str(file))


def test_runs_lists_a_run_of_another_version(tmp_path: Path) -> None:
    """With the file, the version found and the one expected; the others are listed as ever."""
    for name, version in (("new", 7), ("old", RUN_VERSION)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(run_file(name, version=version)))
    done = CliRunner().invoke(main, ["runs", "--output-dir", str(tmp_path)])
    fault = f"{tmp_path / 'new' / 'run.json'}: ignored: version 7; expected version 3"
    assert fault in " ".join(done.stdout.split())
    assert [1, 1] == [done.stdout.count(f"\n{name} ") for name in ("new", "old")]

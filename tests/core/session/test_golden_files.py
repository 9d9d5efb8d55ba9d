"""Session files as they were written when their format was last changed.

A file that differs has another format: raise `SESSION_VERSION`, change the readers in
`gpuprof._artifacts`, and write the files again with ``WRITE_GOLDEN=1``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpuprof
import pytest
from gpuprof._artifacts.records import read_node
from gpuprof._artifacts.settle import captured_windows
from gpuprof._session import public
from gpuprof._session.file import SESSION_VERSION, SessionFile
from gpuprof._shim.row import VARIABLE, encode
from gpuprof.backend.types import Worker
from support.recorder import Recorder
from support.run_files import session_file

WORKER = Worker("run", "A", 0, "node", "1", "/run/node")
GOLDEN = Path(__file__).with_name("golden")
CASES: dict[str, tuple[dict[str, Any], range, list[str]]] = {
    "captured": ({}, range(8), ["step-2", "steps-5-6"]),
    "failed": ({"options": {"fail": "start"}}, range(8), []),
    "not-closed": ({"options": {"fail": "stop"}}, range(4), []),
    "refused": ({"max_bytes": 0}, range(8), []),
    "still-open": ({}, range(6), ["step-2", "steps-5-6"]),
    "whole-life": ({"windows": [(1, None, None)]}, range(2), ["lifetime"]),
    "scopes": (
        {"discrete": True, "max_windows": 2},
        range(8),
        ["step-2 train 1", "steps-5-6 train 1"],
    ),
    "with-a-plugin": ({"plugins": ["extra"]}, range(4), ["step-2"]),
}
"""Changes of the worker's row, its steps, and the windows that were captured."""


@pytest.fixture
def written(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Any], range], SessionFile]:
    """Runs steps in a worker; returns its file, without times and facts of the machine."""

    def write(row: dict[str, Any], steps: range) -> SessionFile:
        monkeypatch.setenv(VARIABLE, encode(recorder.row(**row)))
        public._forget()
        for step in steps:
            with gpuprof.step(step), gpuprof.timer("train"):
                pass
        session = public.session()
        assert session is not None
        session.write()
        file: SessionFile = json.loads(Path(session.file).read_text())
        session.end()
        public._forget()
        for key in ("pid", "process_start", "node", "environment", "step_times"):
            file[key] = session_file()[key]  # type: ignore[literal-required]
        file["timing"], file["while_profiling"] = {}, None
        for window in file["windows"]:
            for key in ("opened", "closed", "seconds"):
                window[key] = window[key] and 1.0  # type: ignore[literal-required]
            if window["state"] == "refused":
                window["error"] = "refused"  # bytes, or the numbers of processes
        return file

    return write


@pytest.mark.parametrize("name", CASES)
def test_a_session_writes_the_file_that_it_used_to_write(
    name: str, written: Callable[[dict[str, Any], range], SessionFile]
) -> None:
    """Key by key, in an order that readers do not depend on."""
    row, steps, _ = CASES[name]
    file, golden = written(row, steps), GOLDEN / f"{name}.json"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(json.dumps(file, indent=1) + "\n")
    assert json.loads(golden.read_text()) == file


@pytest.mark.parametrize("name", CASES)
def test_a_golden_file_is_read(name: str, tmp_path: Path) -> None:
    """The windows that were captured are those of the states that say so."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "A-0.start-1.json").write_text((GOLDEN / f"{name}.json").read_text())
    record = read_node(str(tmp_path), "node")
    assert () == record.faults
    (start,) = record.starts
    assert start.session is not None
    assert SESSION_VERSION == start.session["version"]
    captured = [window.label for window in captured_windows(WORKER, start)]
    assert CASES[name][2] == captured

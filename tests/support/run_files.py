"""Files of a run as gpuprof writes them, complete, with what a test changes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuprof._artifacts.formats import (
    MANIFEST_VERSION,
    RUN_VERSION,
    SETTLED_VERSION,
    Manifest,
    ReceiptEntry,
    RunFile,
    Settled,
)
from gpuprof._artifacts.manifest import setup
from gpuprof._session.environment import Environment
from gpuprof._session.file import SESSION_VERSION, SessionFile, WindowEntry, WindowState
from gpuprof._session.step_times import StepTimes
from gpuprof._shim.files import ToolStatus, tool_status
from gpuprof._shim.ownership import note_owner
from gpuprof.backend.types import Window
from gpuprof_timing import Timing

ENVIRONMENT: Environment = {
    "python": "3.11.2",
    "torch": None,
    "ray": None,
    "driver": None,
    "gpus": [],
}


def _state(entry: dict[str, Any]) -> WindowState:
    if entry["opened"] is None:
        return "refused"
    return "open" if entry["closed"] is None else "failed" if entry["error"] else "closed"


def window_entry(number: int = 1, start: int = 3, **changes: Any) -> WindowEntry:
    """A window of one step that was opened and closed, unless the changes say another state."""
    window = Window(number, start, start + 1, changes.get("scope"), changes.get("occurrence", 0))
    entry: WindowEntry = {
        "number": number,
        "label": window.label,
        "start": start,
        "stop": start + 1,
        "scope": None,
        "occurrence": 0,
        "state": _state({"opened": 1.0, "closed": 2.0, "error": None, **changes}),
        "opened": 1.0,
        "closed": 2.0,
        "seconds": 1.0,
        "files": None,
        "extras": [],
        "error": None,
    }
    return {**entry, **changes}  # type: ignore[typeddict-item]


def own_node(directory: Path, home: Path) -> Path:
    """A node's directory as a shim makes it, for a run whose files belong at `home`."""
    private = directory / ".gpuprof"
    private.mkdir(parents=True, exist_ok=True)
    note_owner(str(private), {"home": str(home)})
    return directory


def own_scratch(scratch: Path, node: Path, start: str = "A-0.start-1") -> Path:
    """A tool's temporary directory as a shim makes it, for a start in a node's directory."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    (node / ".gpuprof").mkdir(parents=True, exist_ok=True)
    note_owner(
        str(scratch), {"private": str(node / ".gpuprof"), "start": start, "disposable": ["status"]}
    )
    return scratch


def session_file(*windows: WindowEntry, **changes: Any) -> SessionFile:
    """The file of the only start of worker A-0, that ran as process 7."""
    file: SessionFile = {
        "version": SESSION_VERSION,
        "name": "A-0",
        "run": "run",
        "group": "A",
        "rank": 0,
        "node": "node",
        "incarnation": "1",
        "pid": 7,
        "process_start": "1",
        "profiled": True,
        "behind_profiler": False,
        "unwrapped": None,
        "windows": list(windows),
        "skipped": {},
        "faults": [],
        "step": None,
        "step_times": StepTimes().to_dict(),
        "over": True,
        "drives": False,
        "environment": ENVIRONMENT,
        "timing": Timing().to_dict(),
        "while_profiling": None,
        "steps_left_out": 0,
        "whole_life": False,
    }
    return {**file, **changes}  # type: ignore[typeddict-item]


def status(state: Any = "ended", **changes: Any) -> ToolStatus:
    """How a profiler fares."""
    return {**tool_status(state), **changes}  # type: ignore[typeddict-item]


def settled(**changes: Any) -> Settled:
    """What a profiler left that left nothing."""
    empty: Settled = {"version": SETTLED_VERSION, "files": {}, "problems": [], "windows": []}
    return {**empty, **changes}  # type: ignore[typeddict-item]


def run_file(run: str, **changes: Any) -> RunFile:
    """What is written when a run begins, of one without a driver."""
    file: RunFile = {
        "version": RUN_VERSION,
        "begun": 0.0,
        "run": run,
        "backend": "none",
        "directory": f"gpuprof-output/{run}",
        "working_dir": "gpuprof-output",
        "config": {},
        "driver": None,
        "environment": ENVIRONMENT,
        "gpuprof": "1.0",
        "commit": None,
    }
    return {**file, **changes}  # type: ignore[typeddict-item]


def manifest(run: str, receipt: ReceiptEntry, **changes: Any) -> Manifest:
    """What is written when a run ends."""
    file: Manifest = {
        "version": MANIFEST_VERSION,
        "run": run,
        "backend": "nsight",
        "setup": setup(run_file(run, backend="nsight"), ()),
        "receipt": receipt,
        "files": [],
    }
    return {**file, **changes}  # type: ignore[typeddict-item]

"""The runs below an output directory: what each was, what it has left, and removing it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from gpuprof._artifacts import alive
from gpuprof._artifacts.receipt import count, counted
from gpuprof._artifacts.records import NodeRecord, read_nodes
from gpuprof._config.dump import to_mapping
from gpuprof._config.schema import Config
from gpuprof._config.secrets import without_secrets
from gpuprof._shim.files import write_json
from gpuprof.errors import OutputError

_BEGUN = "run.json"
_ENDED = "manifest.json"
_WITHOUT_RECEIPT = {
    True: "it runs",
    False: "finished; gpuprof collect lists it",
    None: "no receipt: it runs, or its driver died (gpuprof collect)",
}


@attrs.frozen
class Run:
    """One run.

    Args:
        name: its id.
        directory: absolute.
        begun: seconds since the epoch.
        backend: the profiler's name.
        reports: how many were expected, and how many of them are complete; ``None`` before there is
            a receipt.
        size: bytes in its directory.
        goes_on: whether it has not ended yet; ``None`` where that is not known, see
            `alive.goes_on`.
    """

    name: str
    directory: str
    begun: float
    backend: str
    reports: tuple[int, int] | None
    size: int
    goes_on: bool | None = None

    @property
    def state(self) -> str:
        """How it ended, in a few words."""
        if self.reports is None:
            return _WITHOUT_RECEIPT[self.goes_on]
        return counted(*self.reports)


def begin(directory: str, run: str, config: Config, driven: bool = False) -> None:
    """Leave word of a run that begins, for whoever looks while it runs, or finishes it after its
    driver has died.

    Args:
        driven: whether the run lasts as long as this process.
    """
    driver = alive.this_process() if driven else None
    settings = without_secrets(to_mapping(config))
    about = {
        "run": run,
        "backend": config.backend,
        "working_dir": config.working_dir,
        "config": settings,
        "driver": driver,
    }
    write_json(os.path.join(directory, _BEGUN), {"version": 1, "begun": time.time(), **about})


def about(directory: str | Path) -> dict[str, Any] | None:
    """What is written about the run in a directory; ``None`` where it is not the directory of one."""
    begun, ended = (_read(Path(directory, name)) for name in (_BEGUN, _ENDED))
    name = os.path.basename(os.path.abspath(directory))
    return {**begun, **ended} if name in (begun.get("run"), ended.get("run")) else None


def _read(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text())
        return found if isinstance(found, dict) else {}
    return {}


def records(directory: str | Path, known: Mapping[str, Any]) -> list[NodeRecord]:
    """What the run's processes have left in its directory, and in this node's staging directory.

    Args:
        known: from `about`.
    """
    output_dir, name = os.path.split(os.path.abspath(directory))
    places = dict.fromkeys(
        os.path.join(parent, name) for parent in (output_dir, known.get("working_dir", output_dir))
    )
    return [record for place in places if os.path.isdir(place) for record in read_nodes(place)]


def runs(output_dir: str) -> list[Run]:
    """The runs in a directory, the oldest first. What is no run is left out."""
    found = []
    for path in Path(output_dir).iterdir() if Path(output_dir).is_dir() else ():
        known = about(path)
        if known is None:
            continue
        receipt = known.get("receipt")
        reports = count(receipt["rows"]) if receipt else None
        size = sum(map(_size, path.rglob("*")))
        begun = known.get("begun", path.stat().st_mtime)
        lives = alive.goes_on(path, known) if receipt is None else False
        found.append(
            Run(
                path.name,
                str(path.absolute()),
                begun,
                known.get("backend", ""),
                reports,
                size,
                lives,
            )
        )
    return sorted(found, key=lambda run: run.begun)


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # its process has just renamed it
        return path.lstat().st_size if path.is_file() else 0
    return 0


def remove(run: Run) -> None:
    """Remove a run's directory.

    Raises:
        OutputError: it is none, or cannot be removed.
    """
    if about(run.directory) is None:
        raise OutputError(f"{run.directory!r} is not the directory of a run; it is left alone")
    try:
        shutil.rmtree(run.directory)
    except OSError as error:
        raise OutputError(f"{run.directory!r} cannot be removed: {error}") from None

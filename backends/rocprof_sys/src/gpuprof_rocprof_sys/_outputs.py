"""Finds the files that the tool writes, and checks that they are complete.

The tool's exit code is always 0, so only its files show a failure.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuprof.backend import Window, Worker, move
from gpuprof.errors import ToolError

_RELOCATING = ("OUTPUT_PATH", "OUTPUT_PREFIX", "TIME_OUTPUT", "FILE_OUTPUT", "PERFETTO_FILE")
_KINDS = {"TRACE": ".proto", "USE_ROCPD": ".db", "PROFILE": ".json"}
"""The extensions of a window's file, in order of preference."""


def relocated(env: Mapping[str, str]) -> list[str]:
    """The user's variables that move the output to where gpuprof does not look."""
    return [f"ROCPROFSYS_{name}" for name in _RELOCATING if f"ROCPROFSYS_{name}" in env]


def is_on(env: Mapping[str, str], name: str) -> bool:
    """Whether a variable, named without its prefix, has a value that the tool reads as true."""
    return env.get(f"ROCPROFSYS_{name}", "").lower() in ("1", "true", "t", "yes", "y", "on")


def expected(worker: Worker, windows: tuple[Window, ...], env: Mapping[str, str]) -> dict[int, str]:
    """The file of each window: one file holds all windows."""
    if relocated(env):
        return {}
    extension = next(
        (_KINDS[name] for name in _KINDS if is_on({"ROCPROFSYS_TRACE": "true", **env}, name)), ""
    )
    return (
        {window.number: f"{worker.final_stem()}{extension}" for window in windows}
        if extension
        else {}
    )


def collect(
    worker: Worker, windows: tuple[Window, ...], env: Mapping[str, str]
) -> dict[int, list[str]]:
    """Move the trace of an ended worker to its final name.

    Raises:
        ToolError: the files are not complete.
    """
    if not windows or relocated(env):
        return {}
    stem = f"{worker.directory}/{glob.escape(worker.file_stem)}-metadata"
    # Forked children of the worker leave their own files, under their own process ids.
    metadata_paths = sorted(glob.glob(f"{stem}-{worker.pid}.json")) or sorted(
        glob.glob(f"{stem}-*.json"), key=os.path.getmtime
    )
    if not metadata_paths:
        raise ToolError(
            "no metadata file, which the tool writes last: the worker was killed, or the files are "
            "incomplete"
        )
    metadata = Path(metadata_paths[0])
    incomplete = problem(metadata)
    if incomplete:
        raise ToolError(incomplete)
    kinds = list(_KINDS.values())
    files = sorted(
        listed(metadata),
        key=lambda file: kinds.index(file.suffix) if file.suffix in kinds else len(kinds),
    )
    final = move(str(files[0]), worker.final_stem(), files[0].suffix)
    paths = [final or str(files[0]), *map(str, files[1:])]
    return {window.number: paths for window in windows}


def problem(metadata: Path) -> str | None:
    """Why the files of a process are not complete, or ``None``.

    Args:
        metadata: the tool's last file, which lists the others.
    """
    try:
        files = listed(metadata)
    except (OSError, ValueError) as error:
        return f"{metadata.name} cannot be read: {error}"
    if not files:
        return f"{metadata.name} lists no file"
    for file in files:
        if not file.exists():
            return f"{file.name} is listed in {metadata.name} but missing"
        if not file.stat().st_size:
            return f"{file.name} is listed in {metadata.name} but empty"
    return None


def listed(metadata: Path) -> list[Path]:
    """The files named anywhere in the metadata, as its layout differs between releases.

    Raises:
        OSError: the metadata cannot be read.
        ValueError: the metadata is not JSON.
    """
    beside = metadata.parent.resolve()
    files = {
        Path(text) for text in _strings(json.loads(metadata.read_text())) if os.path.isabs(text)
    }
    return sorted(
        file
        for file in files
        if file.suffix and file.name != metadata.name and file.resolve().parent == beside
    )


def _strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, (dict, list)):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _strings(part)

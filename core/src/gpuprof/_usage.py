"""How much a run's files take on a node: what `max_bytes` is held against."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuprof import _naming


def used_bytes(directory: str) -> int:
    """The bytes of all files that one run has made on this node so far.

    Those that profilers still keep in their temporary directories count, since windows that follow each other under one capture
    become reports together; and those that have come home during the run.

    Args:
        directory: the run's, of this node.
    """
    found = [_naming.came_home(file) if _naming.is_keeper(file.name) else _size(file) for file in Path(directory).glob("*")]
    return sum(found) + sum(_size(file) for scratch in _scratches(directory) for file in scratch.rglob("*"))


def _scratches(directory: str) -> Iterator[Path]:
    for status in Path(directory, ".gpuprof").glob("*.tool"):
        with suppress(OSError, ValueError):  # just being written
            scratch = json.loads(status.read_text()).get("scratch")
            if scratch:
                yield Path(scratch)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() and not file.is_symlink() else 0
    except OSError:  # moved on
        return 0

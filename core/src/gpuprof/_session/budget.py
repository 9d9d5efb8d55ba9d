"""How many bytes a run's files take on a node, for `max_bytes`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuprof.backend import naming


def used_bytes(directory: str) -> int:
    """The bytes of all files that one run has made on this node so far.

    Counts files still in the profilers' temporary directories, since consecutive windows may become
    reports together, and files collected during the run. Files that vanish meanwhile do not count.

    Args:
        directory: the run's, of this node.
    """
    there = [
        naming.came_home(file) if naming.is_keeper(file.name) else _size(file)
        for file in Path(directory).glob("*")
    ]
    return sum(there) + sum(map(_size, _temporary_files(directory)))


def _temporary_files(directory: str) -> Iterator[Path]:
    for status in Path(directory, ".gpuprof").glob("*.tool"):
        scratch = None
        with suppress(OSError, ValueError):  # just being written
            scratch = json.loads(status.read_text()).get("scratch")
        # `os.walk` does not mind that a folder is removed under it, as those of workers that end
        # are.
        for folder, _, names in os.walk(scratch) if scratch else ():
            yield from (Path(folder, name) for name in names)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() and not file.is_symlink() else 0
    except OSError:
        return 0

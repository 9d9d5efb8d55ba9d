"""How many bytes a run's files take on a node, for `max_bytes`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuprof._shim.files import file_size
from gpuprof._shim.safe import load_json, regular_files
from gpuprof.backend import naming


def used_bytes(directory: str) -> int:
    """The total size in bytes of all files that one run has made on this node so far.

    Includes files that are still in the profilers' temporary directories, since the reports of
    consecutive windows may be written together, and files collected during the run. Files that
    vanish during the call do not count.
    """
    sizes = [
        naming.came_home(file) if naming.is_keeper(file.name) else file_size(file)
        for file in Path(directory).glob("*")
    ]
    return sum(sizes) + sum(map(file_size, _temporary_files(directory)))


def _temporary_files(directory: str) -> Iterator[str]:
    for status in Path(directory, ".gpuprof").glob("*.tool"):
        with suppress(OSError, ValueError, KeyError, TypeError):  # damaged
            scratch = load_json(status)["scratch"]
            yield from (entry.path for entry in (regular_files(scratch) if scratch else ()))

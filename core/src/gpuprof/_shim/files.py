"""Where a worker's files are on its node."""

from __future__ import annotations

import json
import os

from .node import node_name
from .row import Row


def directory(row: Row) -> str:
    """The directory of a worker's files on this node."""
    return os.path.join(row["output_dir"], row["run"], node_name(row))


def private_file(row: Row, name: str) -> str:
    """A file for our own use, beside the reports."""
    return os.path.join(directory(row), ".gpuprof", name)


def started_file(row: Row, incarnation: str) -> str:
    """Where the target of this start of the worker records its process."""
    return private_file(row, f"{start_stem(row, incarnation)}.target")


def status_file(row: Row, incarnation: str) -> str:
    """The shim's record of the profiler: JSON with ``state``, ``reason`` and ``exit_code``."""
    return private_file(row, f"{start_stem(row, incarnation)}.tool")


def exit_code_file(row: Row, incarnation: str) -> str:
    """Where a worker's script saves its exit code, if the command has `KEEP_EXIT_CODE`."""
    return private_file(row, f"{start_stem(row, incarnation)}.exit-code")


def start_stem(row: Row, incarnation: str) -> str:
    """The common prefix of the files of this start of the worker."""
    return f"{row['group']}-{row['rank']}.start-{incarnation}"


def write_json(path: str, data: object) -> None:
    """Write a file atomically."""
    text = json.dumps(data)  # first: if it fails, no temporary file is left
    # process ids repeat in containers
    temporary = f"{path}.{os.uname().nodename}.{os.getpid()}.tmp"
    with open(temporary, "w") as file:
        file.write(text)
    os.replace(temporary, path)

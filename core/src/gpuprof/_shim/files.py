"""Where the files of a worker go on its node."""

from __future__ import annotations

import json
import os

from .node import node_name
from .row import Row


def directory(row: Row) -> str:
    """Where the files of this worker go on this node."""
    return os.path.join(row["output_dir"], row["run"], node_name(row))


def private_file(row: Row, name: str) -> str:
    """A file that is not for the user, beside the reports."""
    return os.path.join(directory(row), ".gpuprof", name)


def started_file(row: Row, incarnation: str) -> str:
    """Where the target of this start of the worker says which process it is."""
    return private_file(row, f"{start_stem(row, incarnation)}.target")


def status_file(row: Row, incarnation: str) -> str:
    """Where the shim says how the profiler fares: JSON with ``state``, ``reason`` and
    ``exit_code``.
    """
    return private_file(row, f"{start_stem(row, incarnation)}.tool")


def exit_code_file(row: Row, incarnation: str) -> str:
    """Where a worker's script leaves its exit code, if the command has `KEEP_EXIT_CODE` in front of
    it.
    """
    return private_file(row, f"{start_stem(row, incarnation)}.exit-code")


def start_stem(row: Row, incarnation: str) -> str:
    """How the names of the files of this start of the worker begin."""
    return f"{row['group']}-{row['rank']}.start-{incarnation}"


def write_json(path: str, data: object) -> None:
    """Write a file that is never seen half-written."""
    text = json.dumps(data)  # before a file is there that nobody would take away
    # process ids repeat in containers
    temporary = f"{path}.{os.uname().nodename}.{os.getpid()}.tmp"
    with open(temporary, "w") as file:
        file.write(text)
    os.replace(temporary, path)

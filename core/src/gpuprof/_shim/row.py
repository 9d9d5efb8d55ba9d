"""A worker's row of the plan, as it travels to its process."""

from __future__ import annotations

import base64
import json
from typing import Any

VARIABLE = "GPUPROF_WORKER"
VERSION = 1
INTERPRETER = "{interpreter}"
KEEP_EXIT_CODE = "{keep_exit_code}"
"""Stands in a command for the words in front of a script by which its exit code reaches us past a
tool that loses it."""

Row = dict[str, Any]


def encode(row: Row) -> str:
    """A row as a value that survives Ray, which expands ``$`` in environment variables."""
    return base64.urlsafe_b64encode(json.dumps(row, separators=(",", ":")).encode()).decode()


def decode(value: str) -> Row:
    """The inverse of `encode`.

    Raises:
        ValueError: it is not a row, or one of another version of gpuprof.
    """
    row = json.loads(base64.urlsafe_b64decode(value))
    if not isinstance(row, dict) or row.get("version") != VERSION:
        raise ValueError(f"{VARIABLE} is not a row of version {VERSION}")
    return row

"""For code that starts workers inside workers, as inference engines do."""

from __future__ import annotations

import os

from gpuprof import _shim


def wrapped() -> bool:
    """Whether this process runs under a profiler that gpuprof has put in front of it, itself or as a subprocess of one that does.

    What a wrapped process starts by `subprocess` or `multiprocessing` is recorded with it, so wrapping it again would wrap it
    twice. An actor or a task that a wrapped worker starts runs unwrapped, unless it gets options of its own.

    >>> wrapped()
    False
    """
    value = os.environ.get(_shim.VARIABLE)
    if not value:
        return False
    try:
        row = _shim.decode(value)
    except ValueError:
        return False
    # Only the shim says this before the worker starts.
    return row.get("role") == "owner" and bool(row.get("profiled")) and not row.get("unwrapped")

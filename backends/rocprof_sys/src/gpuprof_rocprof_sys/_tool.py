"""Finding the tool, and what its release can do.

An unknown release can do nothing that is not in all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache

from gpuprof.backend import Tool


@cache
def find(program: str) -> Tool | None:
    """The launcher and its release, or ``None`` where there is none. Looked up once per process."""
    path = shutil.which(program)
    return Tool(_behind_links(path), _version(_behind_links(path))) if path else None


def _behind_links(path: str) -> str:
    """Where a program really lies, for its package is looked for beside it; under its own name if
    it has that there.
    """
    real = os.path.realpath(path)
    own = os.path.join(os.path.dirname(real), os.path.basename(path))
    return own if os.path.exists(own) else real


def _version(path: str) -> str | None:
    """The Python launcher does not say it, but a native one lies beside it."""
    for name in ("rocprof-sys-avail", "rocprof-sys-sample"):
        program = os.path.join(os.path.dirname(path), name)
        try:
            done = subprocess.run(
                [program, "--version"],
                capture_output=True,
                text=True,
                timeout=30,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        version = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
        if version:
            return version[0]
    return None


def release(tool: Tool) -> tuple[int, ...] | None:
    """The version as numbers.

    >>> release(Tool("rocprof-sys-python", "1.6.0"))
    (1, 6, 0)
    """
    return tuple(int(part) for part in tool.version.split(".")) if tool.version else None


def selects_regions(tool: Tool) -> bool:
    """From 1.6 on a list of roctx ranges says what is recorded; before there is no gate for the
    GPU.
    """
    found = release(tool)
    return found is not None and found >= (1, 6)


def needs_roctx_switch(tool: Tool) -> bool:
    """Before 1.0 markers are recorded only if that is asked for."""
    found = release(tool)
    return found is not None and found < (1, 0)


def splits_words(tool: Tool) -> bool:
    """Before 1.0 the Python launcher evaluates its arguments as shell code: spaces split, ``$``
    expands.
    """
    return needs_roctx_switch(tool)


def missing(program: str) -> str:
    """What to do about it."""
    return (
        f"{program!r} is not on PATH. It comes with ROCm (package rocprofiler-systems); put "
        "/opt/rocm/bin on "
        "PATH, or say where it is with the section's key executable"
    )

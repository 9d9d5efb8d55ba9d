"""Finding the tool, and the abilities of its release.

An unknown release has only the abilities common to all releases.
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
    """The launcher and its release, or ``None`` without one. Looked up once per process."""
    path = shutil.which(program)
    return Tool(_behind_links(path), _version(_behind_links(path))) if path else None


def _behind_links(path: str) -> str:
    """A program's real path, where its package is; under its own name if that exists there."""
    real = os.path.realpath(path)
    own = os.path.join(os.path.dirname(real), os.path.basename(path))
    return own if os.path.exists(own) else real


def _version(path: str) -> str | None:
    """The release, as printed by a native launcher: the Python launcher does not print it."""
    for name in ("rocprof-sys-avail", "rocprof-sys-sample"):
        program = os.path.join(os.path.dirname(path), name)
        try:
            process = subprocess.run(
                [program, "--version"],
                capture_output=True,
                text=True,
                timeout=30,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        version = re.search(r"\d+(\.\d+)+", process.stdout + process.stderr)
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
    """Whether roctx ranges can select what is recorded: from 1.6 on."""
    number = release(tool)
    return number is not None and number >= (1, 6)


def needs_roctx_switch(tool: Tool) -> bool:
    """Whether markers must be turned on explicitly: before 1.0."""
    number = release(tool)
    return number is not None and number < (1, 0)


def splits_words(tool: Tool) -> bool:
    """Whether the Python launcher evaluates its arguments as shell code: before 1.0."""
    return needs_roctx_switch(tool)


def missing(program: str) -> str:
    """The message for a missing launcher, with the ways to install it."""
    return (
        f"{program!r} is not on PATH. It comes with ROCm (package rocprofiler-systems): put "
        "/opt/rocm/bin on PATH, or set rocprof_sys.executable to its path"
    )

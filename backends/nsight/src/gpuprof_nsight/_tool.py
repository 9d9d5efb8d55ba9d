"""Finding nsys."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

from gpuprof import Tool


@cache
def find(executable: str) -> Tool | None:
    """Nsys and its version, or ``None`` where there is none. Looked up once per process."""
    path = shutil.which(executable)
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL).stdout
    except (OSError, subprocess.TimeoutExpired):
        return Tool(path)
    version = re.search(r"\d+(\.\d+)+", said)
    return Tool(path, version[0] if version else None)


def missing(executable: str) -> str:
    """What to do about it."""
    return (
        f"{executable!r} is not on PATH. Install NVIDIA Nsight Systems: scripts/install-nsys.sh (Debian), or "
        "https://developer.nvidia.com/nsight-systems; or say where it is with the section's key executable"
    )

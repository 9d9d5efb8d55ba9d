"""Running nsys on something small, to hear what it says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from gpuprof import end_tool

ATTEMPTS = 3
"""Starting nsys fails about once in a hundred, which is nobody's fault."""
_DEADLINE = 60.0
HANGS = f"it does not end within {_DEADLINE:.0f} s"


def say(command: list[str], directory: str, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints, or why it could not be run. Whatever it leaves running is ended.

    Args:
        directory: its temporary one, by which what it leaves is found.
        environment: variables beside those of this process.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {}), "TMPDIR": directory},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DEADLINE,
        )
    except subprocess.TimeoutExpired:
        return HANGS
    except OSError as error:
        return str(error)
    finally:
        end_tool(directory)
    return done.stdout

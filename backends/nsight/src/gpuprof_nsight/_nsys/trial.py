"""Trial runs of nsys on small programs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuprof.backend import Tool, end_tool, share_temporary

ATTEMPTS = 3
"""About one start of nsys in a hundred fails at random."""
_CRASHED = "Dynamic exception type"
_PAUSES = (0.0, 0.5, 1.5)
"""Seconds before each attempt: on a busy machine nsys's agent can start too late, and nsys crashes.

With twelve at once beside eight busy processes on two cores, 19 to 28 starts of 100 failed; with
these retries, 3.
"""
_DEADLINE = 60.0
HANGS = f"nsys does not end within {_DEADLINE:.0f} s"


def shared_folders(tool: Tool) -> list[str]:
    """The folders in the temporary directory that all nsys of a machine must share.

    2022.4 keeps the lock of its shared memory there, ``/dev/shm/NSys-<version>``. With separate
    locks, one nsys starts while another ends and both lose that memory. No nsys starts any more
    until all agents are gone and the memory is removed: with twelve at once this took five rounds
    at most. 2023.4 keeps all its state there, and a leftover agent takes over other programs'
    recordings (7 of 25 reports were empty), so it shares nothing.
    """
    year = (tool.version or "").partition(".")[0]
    return [] if year.isdigit() and int(year) >= 2023 else ["nvidia"]


@contextmanager
def trial_directory(tool: Tool) -> Iterator[str]:
    """A temporary directory for trial runs of nsys, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as directory:
        share_temporary(directory, shared_folders(tool))
        yield directory


def say(command: list[str], directory: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a command; return its output, or why it could not run. Ends leftover processes.

    Args:
        directory: the command's temporary directory, by which its leftover processes are found.
        environment: variables to add to this process's own.
    """
    for pause in _PAUSES:
        time.sleep(pause)
        said = _say(command, directory, {**os.environ, **(environment or {}), "TMPDIR": directory})
        if _CRASHED not in said:
            break
    return said


def _say(command: list[str], directory: str, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=environment,
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

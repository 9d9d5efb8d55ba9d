"""Running nsys on something small, to hear what it says."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuprof.backend import Tool, end_tool, share_temporary

ATTEMPTS = 3
"""Starting nsys fails about once in a hundred, which is nobody's fault."""
_CRASHED = "Dynamic exception type"
_PAUSES = (0.0, 0.5, 1.5)
"""Seconds before each try of a command that an exception of nsys's own ends: on a busy machine its
agent comes up too late.

Tried with twelve at once beside eight busy processes on two cores: 19 to 28 starts of 100 failed,
and with these tries 3.
"""
_DEADLINE = 60.0
HANGS = f"it does not end within {_DEADLINE:.0f} s"


def shared_folders(tool: Tool) -> list[str]:
    """Folders in the temporary directory that all nsys of a machine must share.

    2022.4 keeps there the lock of memory that they share, ``/dev/shm/NSys-<version>``. With locks
    apart, one starts while another ends and both lose that memory; then no nsys starts any more,
    until all agents are gone and the memory is removed. Tried: twelve at once get there within five
    rounds. 2023.4 keeps everything there, and an agent that somebody has left behind takes what
    others' programs record (tried: 7 of 25 reports were empty), so there nothing is shared.
    """
    year = (tool.version or "").partition(".")[0]
    return [] if year.isdigit() and int(year) >= 2023 else ["nvidia"]


@contextmanager
def trial_directory(tool: Tool) -> Iterator[str]:
    """A temporary directory for runs of nsys, removed in the end."""
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as directory:
        share_temporary(directory, shared_folders(tool))
        yield directory


def say(command: list[str], directory: str, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints, or why it could not be run. Whatever it leaves running is ended.

    Args:
        directory: its temporary one, by which what it leaves is found.
        environment: variables beside those of this process.
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

"""A tool's processes, told from everybody else's by the temporary directory that only they have."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator


def tool_processes(directory: str) -> Iterator[int]:
    """The processes of which the environment names `directory` as ``TMPDIR``, but for this one. A worker has its own back."""
    wanted = f"TMPDIR={directory}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        yield int(name)
            except OSError:
                continue


def end_tool(directory: str) -> None:
    """Kill what a tool has left running, and nobody else's.

    Args:
        directory: the temporary directory that the tool was given for itself.
    """
    for pid in tool_processes(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

"""Trial runs of nsys on small programs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuprof.backend import Tool, run_tool, share_temporary

ATTEMPTS = 3
"""Attempts per check: about one start of nsys in a hundred fails at random."""
_CRASHED = (
    "Dynamic exception type",
    "Connection refused",
    "Connection reset by peer",
    "End of file",
    "Agent lost",
)
"""What nsys prints when its agent was too late, whatever the options are."""
_PAUSES = (0.0, 0.5, 1.5)
"""Seconds before each attempt: on a busy machine nsys's agent can start too late, and nsys crashes.

Measured with twelve concurrent starts and eight busy processes on two cores: 19 to 28 of 100
starts failed, and 3 of 100 with these retries.
"""
HANGS = "nsys hangs: it did nothing for 10 s, or did not finish within 60 s"


@contextmanager
def trial_directory(tool: Tool) -> Iterator[str]:
    """A temporary directory for trial runs of nsys, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as directory:
        share_temporary(directory, tool.shared_temporary)
        yield directory


def output_of(
    command: list[str], directory: str, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command, with retries; return its output, or why it could not run.

    Ends the processes that the command leaves behind.

    Args:
        directory: the command's temporary directory, which also identifies its leftover processes.
        environment: variables to add to this process's own.
    """
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            answer = run_tool(command, directory, {**os.environ, **(environment or {})})
        except OSError as error:
            return str(error)
        output = HANGS if answer is None else answer
        if not any(words in output for words in _CRASHED):
            break
    return output

"""Running nsys in tests, without the attempts that gpuprof makes for a worker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuprof.backend import end_tool
from gpuprof_nsight._nsys import find
from gpuprof_nsight._nsys.trial import trial_directory

from support.waiting import DEADLINE

OF_ITS_START = (
    "Dynamic exception type",
    "Connection reset by peer",
    "Agent launcher failed",
    "Agent lost",
    "End of file",
)
"""What nsys says where its agent has not come up in the time that it gives it."""


class AgentDidNotStart(AssertionError):
    """nsys has ended before the program began: a start of a hundred, more on a busy machine."""


def profile(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run `nsys profile … -o REPORT …` once, without agents left from earlier runs.

    There is no second try here: pytest runs the test again, counts it and names the reason.

    Raises:
        AgentDidNotStart: with what nsys says.
        AssertionError: it failed for another reason.
    """
    tool = find.find(command[0])
    assert tool is not None
    with trial_directory(tool) as directory:
        own = {**(os.environ if environment is None else environment), "TMPDIR": directory}
        try:
            done = subprocess.run(
                command, env=own, capture_output=True, text=True, timeout=DEADLINE, check=False
            )
        finally:
            end_tool(directory)  # an agent can outlive its nsys
    said = done.stdout + done.stderr
    report = Path(command[command.index("-o") + 1] + ".nsys-rep")
    if done.returncode or not report.exists():
        # it can end with 0 and have made nothing
        outcome = (
            AgentDidNotStart if any(words in said for words in OF_ITS_START) else AssertionError
        )
        raise outcome(
            f"nsys ended with {done.returncode}; report: {report.exists()}; it said: {said}"
        )

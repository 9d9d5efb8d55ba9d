"""Running nsys in tests: on a busy machine some of a hundred starts fail before the program has begun. That is no fault of ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from gpuprof_nsight._nsys import find
from gpuprof_nsight._nsys.trial import trial_directory

ATTEMPTS = 5


def profile(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command of nsys, again if it fails, where no agent that somebody has left behind takes what it records.

    Raises:
        AssertionError: with what it says in the end.
    """
    tool = find.find(command[0])
    assert tool is not None
    with trial_directory(tool) as directory:
        own = {**(os.environ if environment is None else environment), "TMPDIR": directory}
        for _ in range(ATTEMPTS):
            done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)
            if not done.returncode:
                return
    raise AssertionError(done.stdout + done.stderr)

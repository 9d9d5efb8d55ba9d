"""Running nsys in tests: on a busy machine some of a hundred starts fail before the program has begun. That is no fault of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

ATTEMPTS = 5


def profile(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command of nsys, again if it fails.

    Raises:
        AssertionError: with what it says in the end.
    """
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if not done.returncode:
            return
    raise AssertionError(done.stdout + done.stderr)

"""The kit on the planted faults, each a mistake of another kind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.scripts import CHECKOUT

RUN = CHECKOUT / "testing" / "planted" / "run.py"
SAMPLE = {"leaves-cwd": "a_window_leaves_its_surroundings_alone"}
CORRECT = {"correct-tracer", "correct-wrapper", "correct-variables"}
_LINE = re.compile(r"([\w-]+): (\w+) \(")


def caught(*faults: str) -> dict[str, str]:
    """The check that catches each of these faults, or of all, or MISSED."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, str(RUN), "--jobs", "1", *faults],
        env={**os.environ, "PATH": path},  # the wrapper's program is a Python script
        capture_output=True,
        text=True,
        check=True,
    )
    matches = filter(None, map(_LINE.match, done.stdout.splitlines()))
    return {match[1]: match[2] for match in matches}


def test_the_sample_is_caught() -> None:
    """By the check that is for it."""
    assert SAMPLE == caught(*SAMPLE)


@pytest.mark.exhaustive
def test_faults_are_caught_and_correct_backends_pass() -> None:
    """The kit misses no planted fault, and finds none in the backends that have them."""
    results = caught()
    assert CORRECT == {name for name, check in results.items() if check == "MISSED"}

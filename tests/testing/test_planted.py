"""The kit on a sample of the planted faults; `make test-planted` tries them all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.scripts import CHECKOUT
from support.waiting import DEADLINE

RUN = CHECKOUT / "testing" / "planted" / "run.py"
# of a tracer, a wrapper, variables, and the launcher
SAMPLE = {
    "leaves-cwd": "a_window_leaves_its_surroundings_alone",
    "command-drops-interpreter-flags": "the_command_has_good_words",
    "env-ld-preload-replaced": "variables_are_the_tools_own",
    "launcher-always-zero": "the_exit_code_passes",
}
OTHERS = {
    "failed-start-half-on": "a_start_that_cannot_write_is_undone",
    "state-shared-by-instances": "instances_share_nothing",
    "command-prints": "hooks_leave_their_surroundings_alone",
    "raw-file-shared-by-ranks": "plans_of_two_workers_differ",
    "shared-temporary-absolute": "shared_folders_are_inside",
    "collect-leaves-cwd": "hooks_leave_their_surroundings_alone",
    "read-cached-by-base-name": "ranges_are_read_as_they_were",
    "launcher-nice": "the_process_is_as_the_launcher_made_it",
}
CORRECT = ("correct-tracer", "correct-wrapper", "correct-variables")
_LINE = re.compile(r"([\w-]+): (\w+) \(")


def caught(*faults: str) -> dict[str, str]:
    """The check that catches each fault, or MISSED."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, str(RUN), "--jobs", "1", *faults],
        env={**os.environ, "PATH": path},  # the wrapper's program is a Python script
        capture_output=True,
        text=True,
        timeout=DEADLINE * len(faults),
        check=True,
    )
    matches = filter(None, map(_LINE.match, done.stdout.splitlines()))
    return {match[1]: match[2] for match in matches}


@pytest.mark.parametrize(
    "faults", [SAMPLE, pytest.param(OTHERS, marks=pytest.mark.exhaustive)], ids=["some", "others"]
)
def test_the_sample_is_caught(faults: dict[str, str]) -> None:
    """Each by the check that is for it."""
    assert faults == caught(*faults)


@pytest.mark.exhaustive
def test_the_correct_backends_pass() -> None:
    """What the faults are planted in has none itself."""
    assert dict.fromkeys(CORRECT, "MISSED") == caught(*CORRECT)

"""NeMo-RL's source, unchanged on disk, with gpuprof: `make test-frameworks CHECKOUTS=…`."""

from __future__ import annotations

import pytest
from support.frameworks import (
    Framework,
    InstrumentChecks,
    JobChecks,
    OwnTestChecks,
    UnknownReleaseChecks,
)

NEMO_RL = Framework(
    package="nemo_rl",
    tried="0.6.0",
    on_pypi=False,
    group="dtensor_policy_worker",
    selection="*policy*",
    windows=1,  # its range of steps is one
    in_workers={"dtensor_policy_worker/train", "forward_backward"},
    in_driver={"total_step_time", "policy_training"},
    variables={"NRL_NSYS_WORKER_PATTERNS": "*policy*", "NRL_NSYS_PROFILE_STEP_RANGE": "2:4"},
    scopes={
        *("outer", "inner", "failing", "again", "first", "second", "elsewhere", "forgotten"),
        *("decorating", "open"),
    },
    own_tests=("tests/unit/utils/test_timer.py", "tests/unit/utils/test_nsys.py"),
)
pytestmark = [pytest.mark.nsys, NEMO_RL.needed]


class TestJob(JobChecks):
    """Five steps, two of them captured."""

    framework = NEMO_RL


class TestUnknownRelease(UnknownReleaseChecks):
    """The same job in another release."""

    framework = NEMO_RL


class TestInstruments(InstrumentChecks):
    """`Timer` and `ThreadSafeTimer`."""

    framework = NEMO_RL


@NEMO_RL.needs_checkout
class TestOwnTests(OwnTestChecks):
    """Of its timers and its profiler."""

    framework = NEMO_RL

"""What the tests of the tree share."""

from __future__ import annotations

import pytest
from gpuprof_timing import Timing
from support.manual_clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timing(clock: Clock) -> Timing:
    return Timing("t", clock=clock)

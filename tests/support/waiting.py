"""Waiting in tests: for an event, with one deadline that no machine reaches which is only slow."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE = 600.0
"""Seconds after which a wait is a hang: ten times what the slowest of them takes on two busy cores.
"""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for what another process or thread does.

    Args:
        condition: asked until it is true.
        what: the event, for the failure's message.

    Raises:
        AssertionError: it has not come within `DEADLINE`.
    """
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"in {DEADLINE:.0f} s: not {what}"
        time.sleep(0.02)

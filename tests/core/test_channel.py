"""The driver's end of the connections to workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpuprof._types import Window
from gpuprof.ray._channel import Channel


@pytest.fixture
def channel() -> Iterator[Channel]:
    channel = Channel("127.0.0.1")
    yield channel
    channel.close()


def test_a_worker_whose_connection_has_ended_does_not_keep_a_close_waiting(channel: Channel) -> None:
    """It may end at any moment before it is told: the driver answers for it, and does not wait for the deadline."""
    request = channel.post("close", {"A-0": Window(1, 2, 3)}, 120)
    assert request.wait(30)
    assert {"A-0": "the worker ended"} == request.answers


def test_a_worker_that_is_not_connected_may_still_open(channel: Channel) -> None:
    """It may be starting: an open is not answered for it."""
    opened = channel.post("open", {"A-0": Window(1, 2, 3)}, 120)
    assert channel.post("close", {"A-0": Window(1, 2, 3)}, 120).wait(30)  # by then the open is posted, too
    assert {} == opened.answers

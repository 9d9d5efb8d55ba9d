"""Scopes that wait for work elsewhere, under keys that both sides know."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gpuprof_timing import Timing
from gpuprof_timing._node import Node
from gpuprof_timing._spans import Linked, SpanLog
from support.manual_clock import Clock


@pytest.fixture
def log(clock: Clock) -> Iterator[SpanLog]:
    """A recording of the spans of trees with `clock`."""
    log = SpanLog(clock)
    log.begin()
    yield log
    log.end()


def spans(log: SpanLog) -> list[tuple[Node, Any]]:
    """All that was recorded: places and tracks."""
    taken = log.take()
    return list(zip(taken.nodes, taken.tracks, strict=True))


def links(log: SpanLog) -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, role and keys of each span that has keys."""
    return [
        (node.key, track.role, track.keys)
        for node, track in spans(log)
        if isinstance(track, Linked)
    ]


@pytest.mark.parametrize(
    ("waits_for", "role"),
    [("EnvGroup", "waits"), ("*", "waits"), ("barrier", "meets"), (None, "releases")],
)
def test_what_a_scope_waits_for_decides_what_its_key_does(
    timing: Timing, log: SpanLog, waits_for: str | None, role: str
) -> None:
    """A scope that waits for nothing releases its key."""
    with timing.add_time("here", waits_for=waits_for, key="batch-3"):
        pass
    assert links(log) == [("here", role, ("batch-3",))]


def test_a_scope_that_waits_without_a_key(timing: Timing, log: SpanLog) -> None:
    """Its place says for whom; there is nothing to link."""
    with timing.add_time("recv", waits_for="EnvGroup"):
        pass
    ((node, track),) = spans(log)
    assert (node.waits_for, track) == ("EnvGroup", threading.get_ident())


def test_several_keys(timing: Timing, log: SpanLog) -> None:
    """A scope may wait for several things."""
    with timing.add_time("recv", waits_for="EnvGroup", key=("a", "b")):
        pass
    assert links(log) == [("recv", "waits", ("a", "b"))]


def test_a_key_that_is_known_at_the_end_only(timing: Timing, log: SpanLog) -> None:
    """A function is called when the scope ends, so it can look at what was received."""
    received: list[str] = []
    with timing.add_time("recv", waits_for="EnvGroup", key=lambda: received[0]):
        received.append("batch-7")
    assert links(log) == [("recv", "waits", ("batch-7",))]


def test_a_decorated_function_makes_a_key_of_its_arguments(timing: Timing, log: SpanLog) -> None:
    """Each call has its own."""

    @timing.add_time("send", key=lambda batch, *, to: f"{to}-{batch}")
    def send(batch: int, *, to: str) -> int:
        return batch

    assert (1, 2) == (send(1, to="env"), send(2, to="env"))
    assert links(log) == [("send", "releases", ("env-1",)), ("send", "releases", ("env-2",))]


def test_a_decorated_coroutine_function_makes_a_key_of_its_arguments(
    timing: Timing, log: SpanLog
) -> None:
    """It ends in a task: the span is on the task's track."""

    @timing.add_time("recv", waits_for="EnvGroup", key=lambda batch: f"batch-{batch}")
    async def receive(batch: int) -> None:
        await asyncio.sleep(0)

    asyncio.run(receive(4))
    ((_, track),) = spans(log)
    assert isinstance(track, Linked)
    assert track.keys == ("batch-4",)
    assert isinstance(track.track, tuple)


def broken() -> str:
    """A key that cannot be made."""
    raise LookupError("no batch")


def test_a_key_that_fails_costs_the_link_only(
    timing: Timing, log: SpanLog, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on; the fault is logged once."""
    for _ in range(2):
        with timing.add_time("recv", waits_for="EnvGroup", key=broken):
            pass
    assert [] == links(log)
    assert timing._recording.root.children["recv"].count == 2
    assert [record.getMessage() for record in caplog.records] == [
        "t: 'recv' has no key in the ledger: LookupError: no batch"
    ]


def test_a_scope_left_by_an_exception_need_not_have_its_key(
    timing: Timing, log: SpanLog, caplog: pytest.LogCaptureFixture
) -> None:
    """What the key is made of may not be there, which is no fault."""
    with (
        pytest.raises(TimeoutError),
        timing.add_time("recv", waits_for="EnvGroup", key=broken),
    ):
        raise TimeoutError
    assert [] == links(log)
    assert [] == caplog.records


def test_without_a_recording_no_key_is_made(timing: Timing) -> None:
    """Keys cost nothing where no ledger is written."""
    asked: list[int] = []

    def key() -> str:
        asked.append(1)
        return "a"

    with timing.add_time("recv", waits_for="EnvGroup", key=key):
        pass
    assert asked == []


def test_a_place_that_a_plain_scope_has_made(timing: Timing, log: SpanLog) -> None:
    """It is a place that waits as soon as one scope there does."""
    with timing.add_time("recv"):
        pass
    with timing.add_time("recv", waits_for="EnvGroup", key="a"):
        pass
    assert timing._recording.root.children["recv"].waits_for == "EnvGroup"
    assert links(log) == [("recv", "waits", ("a",))]


def test_a_scope_cannot_be_on_the_device_and_linked(timing: Timing) -> None:
    """Two nested scopes are both."""
    with pytest.raises(ValueError, match="device='cuda': not together with waits_for or key"):
        timing.add_time("recv", "cuda", waits_for="EnvGroup")


@pytest.mark.parametrize("switch", [False, True])
def test_a_linked_scope_is_switched_off_like_others(
    timing: Timing, log: SpanLog, switch: bool
) -> None:
    """A decorated function asks at each call."""

    @timing.add_time("send", key="a")
    def send() -> None:
        pass

    timing.enabled = switch
    send()
    with timing.add_time("recv", waits_for="*", key="a"):
        pass
    assert len(links(log)) == (2 if switch else 0)

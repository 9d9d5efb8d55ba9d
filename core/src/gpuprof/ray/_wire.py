"""The parts that both ends of the connection between driver and worker share."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import attrs

from gpuprof._session.file import WindowEntry

_IDLE, _INTERVAL, _PROBES = 60, 10, 6
"""Seconds of silence, seconds between probes, lost probes: connections are idle between windows,
for hours."""


@attrs.frozen
class Address:
    """Where the driver listens, and the secret that it expects."""

    host: str
    port: int
    secret: str


class Challenge(TypedDict):
    """The driver's first line: a nonce."""

    challenge: str


class Hello(TypedDict):
    """A worker's first line; see `proof`.

    Keys:
        clock: what its monotonic clock belongs to; see `gpuprof._session.ledger.clock_id`.
    """

    worker: str
    proof: str
    clock: str


class Message(TypedDict):
    """The driver's request: open or close a window.

    Keys:
        number: of the request.
        expiry: seconds since the epoch, after which opening is too late.
        window: its number, first step, and the step after the last.
    """

    number: int
    kind: Literal["open", "close"]
    expiry: float
    window: tuple[int, int | None, int | None]


STEP = 0
"""The number of an announcement to all workers; requests count from 1."""


class StepNote(TypedDict):
    """The driver's announcement of a step. The answer's number is `STEP`.

    Keys:
        left_out: whether the step is left out of the timing tree.
        withdrawn: whether this is about the same step again, which is not left out after all.
    """

    kind: Literal["step"]
    left_out: bool
    withdrawn: bool


class FlushNote(TypedDict):
    """The driver's request to write what the worker has recorded. The answer's number is `STEP`.

    Keys:
        last: whether the run ends, and with it the worker's ledger.
    """

    kind: Literal["flush"]
    last: bool


class ClockQuestion(TypedDict):
    """The driver's question for the time.

    Keys:
        asked: when, in nanoseconds of the driver's monotonic clock.
    """

    kind: Literal["clock"]
    asked: int


class ClockAnswer(TypedDict):
    """A worker's answer to a `ClockQuestion`.

    Keys:
        asked: from the question.
        received: when the question came, in nanoseconds of the worker's monotonic clock.
        sent: when this answer was sent, likewise.
    """

    asked: int
    received: int
    sent: int


@attrs.frozen
class Measurement:
    """How another monotonic clock differs from this process's.

    Args:
        clock: what the other clock belongs to.
        at: when, in nanoseconds of this process's clock.
        offset: what to add to the other clock for this one, in nanoseconds.
        bound: how wrong `offset` may be, in nanoseconds.
    """

    clock: str
    at: int
    offset: int
    bound: int


def measure(clock: str, answer: ClockAnswer, answer_time: int) -> Measurement:
    """What a question and its answer say about a clock.

    The worker's two stamps lie between the driver's two, however long each way took: so `bound` is
    half of the time on the way, and holds for any asymmetry.

    Args:
        answer_time: when the answer came, in nanoseconds of this process's clock.

    >>> measure("b", {"asked": 100, "received": 5130, "sent": 5135}, 145)
    Measurement(clock='b', at=122, offset=-5010, bound=20)
    """
    question_time, receive_time, send_time = answer["asked"], answer["received"], answer["sent"]
    on_the_way = (answer_time - question_time) - (send_time - receive_time)
    if on_the_way < 0:
        raise ValueError("the stamps contradict each other")
    at = (question_time + answer_time) // 2
    return Measurement(clock, at, at - (receive_time + send_time) // 2, (on_the_way + 1) // 2)


class Answer(TypedDict):
    """A worker's answer to a request.

    Keys:
        number: of the request.
        problem: what went wrong.
        window: what has become of the window; ``None`` if nothing has, or the request is of none.
    """

    number: int
    problem: str | None
    window: WindowEntry | None


def proof(secret: str, challenge: str, worker: str) -> str:
    """The answer to a challenge, which needs the secret."""
    return hmac.new(secret.encode(), f"{challenge} {worker}".encode(), "sha256").hexdigest()


def keep_alive(connection: Any) -> None:
    """Keep an idle connection alive through firewalls.

    Notices within two minutes that the other end is gone.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE),
        ("TCP_KEEPINTVL", _INTERVAL),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, name):  # missing on some systems
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def send(connection: socket.socket, message: Mapping[str, object]) -> None:
    """Send a message as a line of JSON."""
    connection.sendall(json.dumps(message).encode() + b"\n")

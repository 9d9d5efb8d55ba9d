"""The messages and functions used at both ends of the connection between driver and worker."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import attrs

from gpuprof._session.file import WindowEntry

_IDLE, _INTERVAL, _PROBES = 60, 10, 6
"""TCP keep-alive: seconds of silence before the first probe, seconds between probes, and the number
of lost probes that end a connection. Between windows, connections may be idle for hours."""


@attrs.frozen
class Address:
    """The address on which the driver listens, and the secret that it expects."""

    host: str
    port: int
    secret: str


class Challenge(TypedDict):
    """The driver's first line: a nonce."""

    challenge: str


class Hello(TypedDict):
    """A worker's first line; see `proof`.

    Keys:
        clock: the id of the worker's monotonic clock; see `gpuprof._session.ledger.clock_id`.
        file: the name of the file of the worker's answers to `gpuprof stacks`.
    """

    worker: str
    proof: str
    clock: str
    node: str
    pid: int
    file: str


class Message(TypedDict):
    """The driver's request: open or close a window.

    Keys:
        expiry: seconds since the epoch, after which it is too late to open the window.
        window: the window's number, its first step, and the step after its last.
    """

    number: int
    kind: Literal["open", "close"]
    expiry: float
    window: tuple[int, int | None, int | None]


class StepNote(TypedDict):
    """The driver's announcement of a step.

    Keys:
        withdrawn: whether this corrects the announcement of the current step, which is not left out
            after all.
    """

    number: int
    kind: Literal["step"]
    left_out: bool
    withdrawn: bool


class FlushNote(TypedDict):
    """The driver's request to write what the worker has recorded.

    Keys:
        last: whether the run ends, so that the worker also ends its ledger.
    """

    number: int
    kind: Literal["flush"]
    last: bool


class StacksQuestion(TypedDict):
    """The driver's question for the stacks of all processes of the worker's node."""

    kind: Literal["stacks"]
    question: str


class StacksAnswer(TypedDict):
    """What one process does. The content of its answer's file follows this line.

    Keys:
        size: the size of the content in bytes.
    """

    question: str
    file: str
    size: int


class ClockQuestion(TypedDict):
    """The driver's question for the time on the worker's clock.

    Keys:
        asked: when the question was sent, in nanoseconds of the driver's monotonic clock.
    """

    kind: Literal["clock"]
    asked: int


class ClockAnswer(TypedDict):
    """A worker's answer to a `ClockQuestion`.

    Keys:
        asked: the value from the question.
        received: when the question came, in nanoseconds of the worker's monotonic clock.
        sent: when this answer was sent, in nanoseconds of the worker's monotonic clock.
    """

    asked: int
    received: int
    sent: int


@attrs.frozen
class Measurement:
    """The offset between another monotonic clock and this process's.

    Args:
        at: the time of the measurement, in nanoseconds of this process's clock.
        offset: the nanoseconds to add to the other clock's time to get this clock's time.
        bound: the largest possible error of `offset`, in nanoseconds.
    """

    clock: str
    at: int
    offset: int
    bound: int


def measure(clock: str, answer: ClockAnswer, answer_time: int) -> Measurement:
    """Measure another clock from a question and its answer.

    Both time stamps of the worker lie between those of the driver, however long each message took.
    So `bound` is half of the time that both messages together took, and holds even if one message
    took all of it.

    Args:
        answer: the answer, which repeats the time of the question.

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
        problem: what went wrong; ``None`` if nothing did.
        window: the entry of the window; ``None`` if it has none, or the request is about no window.
    """

    number: int
    problem: str | None
    window: WindowEntry | None


def proof(secret: str, challenge: str, worker: str) -> str:
    """The answer to a challenge. It proves that the worker knows the secret."""
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


def line(message: Mapping[str, object]) -> bytes:
    """A message as a line of JSON."""
    return json.dumps(message).encode() + b"\n"

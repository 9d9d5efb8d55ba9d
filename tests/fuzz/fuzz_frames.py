"""What strangers and workers send to the driver's port: the driver goes on, and workers connect."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
from typing import Any

from gpuprof.backend.types import Window
from gpuprof.ray._channel import Channel
from gpuprof.ray._wire import proof
from support.fuzzing import within
from support.run_files import window_entry
from support.waiting import wait_until

NAME = "frames"
SECONDS = 60
"""For one case, which takes milliseconds."""
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**64, 1e308, "", "A-0", "A-1", "\ud800", "é", "x" * 1000, [], [1], {},
    {"a": 1}, "open", "close",
)  # fmt: skip


class Faults(logging.Handler):
    """What asyncio says of exceptions that nobody caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


def frame(secret: str, challenge: str, chance: random.Random) -> bytes:
    """A line, or what is not quite one."""
    kind = chance.randrange(7)
    worker = chance.choice(["A-0", "A-1", "B-0", ""])
    hello: dict[str, Any] = {
        "worker": worker,
        "proof": proof(secret, challenge, worker),
        "clock": "clock",
    }
    answer: dict[str, Any] = {
        "number": chance.randrange(3),
        "problem": None,
        "window": window_entry(state="open"),
    }
    if kind == 0:
        return chance.randbytes(chance.randrange(100))
    if kind == 1:
        return chance.choice([b"[", b'{"a":', b"9"]) * chance.choice([10, 5000, 70_000]) + b"\n"
    if kind == 2:
        return json.dumps(chance.choice(_VALUES)).encode() + b"\n"
    stamps: dict[str, Any] = {"asked": chance.randrange(100), "received": 5, "sent": 6}
    message = chance.choice([hello, answer, stamps])
    if kind < 6:
        for key in list(message):
            if chance.random() < 0.3:
                message[key] = chance.choice(_VALUES)
            elif chance.random() < 0.1:
                del message[key]
    text = json.dumps(message).encode() + b"\n"
    return text[: chance.randrange(len(text))] if kind == 5 else text


def talk(channel: Channel, chance: random.Random) -> None:
    """One connection, of a stranger or of a worker that says strange things."""
    address = (channel.address.host, channel.address.port)
    with socket.create_connection(address, timeout=SECONDS) as peer:
        challenge = json.loads(peer.makefile("rb").readline())["challenge"]
        with contextlib.suppress(ConnectionError):  # it has hung up
            if chance.random() < 0.5:
                secret = channel.address.secret
                known = {"worker": "B-0", "proof": proof(secret, challenge, "B-0"), "clock": "b"}
                peer.sendall(json.dumps(known).encode() + b"\n")
            for _ in range(chance.randint(1, 4)):
                peer.sendall(frame(channel.address.secret, challenge, chance))


def check(channel: Channel) -> None:
    """A worker still connects, is told of a window, and its answer arrives."""
    address = (channel.address.host, channel.address.port)
    with (
        socket.create_connection(address, timeout=SECONDS) as worker,
        worker.makefile("rb") as lines,
    ):
        challenge = json.loads(lines.readline())["challenge"]
        proved = proof(channel.address.secret, challenge, "W-0")
        hello = {"worker": "W-0", "proof": proved, "clock": "w"}
        worker.sendall(json.dumps(hello).encode() + b"\n")
        request = channel.post("open", {"W-0": Window(1, 2, 3)}, SECONDS)
        told = json.loads(lines.readline())
        window = window_entry(state="open")
        answer = {"number": told["number"], "problem": None, "window": window}
        worker.sendall(json.dumps(answer).encode() + b"\n")
        assert request.wait(SECONDS), "the worker's answer has not arrived"
        assert (None, window) == request.answers["W-0"]
        channel.forget(request)
    wait_until(lambda: "W-0" not in channel.connected(), "the worker is gone")


def run(seed: int, count: int) -> None:
    """Send `count` conversations; raises at the first after which the port does not work."""
    faults = Faults()
    logging.getLogger("asyncio").addHandler(faults)
    channel = Channel("127.0.0.1")
    pending = channel.post("open", {"A-0": Window(1, 2, 3), "B-0": Window(1, 2, 3)}, 3600)
    number = seed
    try:
        for number in range(seed, seed + count):
            chance = random.Random(number)
            with within(SECONDS):
                talk(channel, chance)
                if (number - seed) % 20 == 19 or number == seed + count - 1:
                    check(channel)
            assert not faults.found, faults.found[0]
    except BaseException as error:
        first = max(seed, number - 19)
        raise AssertionError(
            f"{type(error).__name__}: {error}\n"
            f"again: python tests/fuzz --seed {first} --count {number - first + 1} {NAME}"
        ) from error
    finally:
        logging.getLogger("asyncio").removeHandler(faults)
        channel.forget(pending)
        channel.close()

"""The parts that both ends of the connection between driver and worker share."""

from __future__ import annotations

import json
import socket
from typing import Any

import attrs

_IDLE, _INTERVAL, _PROBES = 60, 10, 6
"""Seconds of silence, seconds between probes, lost probes: connections are idle between windows,
for hours."""


@attrs.frozen
class Address:
    """Where the driver listens, and the secret that it expects."""

    host: str
    port: int
    secret: str


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


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")

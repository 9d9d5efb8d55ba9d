"""Decides which of the processes that have a worker's environment is the worker."""

from __future__ import annotations

import fcntl
import json
import os

from .files import private_file, started_file
from .ownership import own_directory
from .processes import process_parent, process_start, started_process
from .row import Row
from .safe import UnsafeFile, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Claim(TypedDict):
        """A process that has taken a worker's identity."""

        incarnation: int
        pid: int
        start: str | None
        parent: int


TOGETHER = 0.5
"""The most seconds between the starts of twins, on a busy machine."""


def claim(row: Row, pid: int, *, twins: bool = False) -> str | None:
    """Claim this worker's identity on this node for the process `pid`.

    The worker's children inherit its environment but must not pass for the worker.

    Args:
        twins: allow several processes that began at the same moment to share the identity. If a
            first task finds no idle process, Ray starts two, one as a spare, and either may get
            the task.

    Returns:
        The incarnation, from ``1``; or ``None`` if a live process already has the identity.

    Raises:
        ValueError: the existing file of claims is damaged.
    """
    path = private_file(row, f"{row['group']}-{row['rank']}.claim")
    own_directory(row)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags, 0o666), "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        claims: list[Claim] = _checked(parse_json(text.encode())) if text else []
        own_claim: Claim = {
            "incarnation": len(claims) + 1,
            "pid": pid,
            "start": process_start(pid),
            "parent": process_parent(pid),
        }
        if any(
            _lives(row, other) and not (twins and _are_twins(own_claim, other)) for other in claims
        ):
            return None
        file.truncate(0)
        json.dump([*claims, own_claim], file)
    return str(own_claim["incarnation"])


def _checked(claims: object) -> list[Claim]:
    """The claims in a file, or an error if it holds anything else."""
    if not isinstance(claims, list) or not all(
        isinstance(claim, dict)
        and all(isinstance(claim.get(key), int) for key in ("incarnation", "pid", "parent"))
        and str(claim.get("start") or 0).isdecimal()
        for claim in claims
    ):
        raise UnsafeFile("expected a list of claims")
    return claims


def _are_twins(one: Claim, other: Claim) -> bool:
    """Whether two processes were started at the same moment.

    A child process that a worker starts begins at least a second after the worker.
    """
    seconds = abs(int(one["start"] or 0) - int(other["start"] or 0)) / os.sysconf("SC_CLK_TCK")
    return one["parent"] == other["parent"] and seconds <= TOGETHER


def _lives(row: Row, other: Claim) -> bool:
    # The claim names the shim, which outlives its worker while the profiler writes the report. So
    # the worker's own process counts instead, once it has recorded itself.
    target = started_process(started_file(row, str(other["incarnation"])))
    pid, start = target or (other["pid"], other["start"])
    return start is not None and process_start(pid) == start

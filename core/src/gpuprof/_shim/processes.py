"""Identifies a process by its id and start time, because its id may be reused later."""

from __future__ import annotations

import os

from .safe import read_bytes


def process_start(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; ``None`` if it has ended or is a zombie.

    Source: proc(5), field 22.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            return start_of(file.read())
    except OSError:
        return None


def process_parent(pid: int) -> int:
    """The id of a process's parent; 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def process_children(pid: int) -> list[int]:
    """The ids of a process's children; empty if the process has ended."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children += map(int, file.read().split())
    except OSError:  # it ends, or the kernel has no such file
        pass
    return children


def start_of(stat: str) -> str | None:
    """A process's start time as in `process_start`, parsed from ``/proc/<pid>/stat``."""
    fields = stat.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in "ZX" else fields[19]


def place() -> str:
    """Where this process's ids are valid: the host's name and its process namespace (container)."""
    return f"{os.uname().nodename} {os.stat('/proc/self/ns/pid').st_ino}"


def started_process(path: str) -> tuple[int, str] | None:
    """The id and start time that a worker's process recorded in a file; ``None`` before it has."""
    try:
        stat = read_bytes(path, 4096).decode()
        start = start_of(stat)
        return (int(stat.split(None, 1)[0]), start) if start else None
    except (OSError, ValueError):  # it may be damaged
        return None

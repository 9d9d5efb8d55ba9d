"""Whether what a tool has left running still does anything: an nsys whose two halves never met waits for ever."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from gpuprof import _shim
from gpuprof._scratch import tool_processes

PATIENCE = 45.0
"""Seconds. A process that is forked while nsys writes can stall it for 30."""


def stalled(scratch: str, note: str) -> bool:
    """Whether the tool's processes have not run for `PATIENCE` seconds, nor waited for a disk.

    Args:
        scratch: the tool's temporary directory.
        note: a file for what was seen the last time, for somebody else may look the next time.
    """
    ticks, busy = _work(scratch)
    known = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(Path(note).read_text())
    if not busy and known.get("ticks") == ticks:
        return bool(time.time() > known["since"] + PATIENCE)
    with contextlib.suppress(OSError):  # a full disk: the caller has a deadline
        _shim.write_json(note, {"ticks": ticks, "since": time.time()})
    return False


def _work(scratch: str) -> tuple[dict[str, int], bool]:
    """Processor time of each of the tool's threads, in clock ticks, and whether one runs or waits for a disk. Source: proc(5)."""
    ticks, busy = {}, False
    for pid in tool_processes(scratch):
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                state, *fields = stat.read_text().rpartition(")")[2].split()
                ticks[stat.parent.name] = int(fields[10]) + int(fields[11])
                busy |= state in "RD"
    return ticks, busy

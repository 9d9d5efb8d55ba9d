"""Ranks that became slow while a run went on, as its companion has left them."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from gpuprof._artifacts.formats import SLOW_VERSION, SlowRank, read
from gpuprof._shim.files import write_json
from gpuprof.errors import OutputError


def found(run_directory: str) -> list[SlowRank]:
    """The slow ranks of a run so far."""
    slow_ranks = []
    for path in sorted(Path(run_directory).glob("slow-*.json")):
        with suppress(OSError, OutputError):
            slow_ranks.append(read(path, SlowRank, SLOW_VERSION))
    return slow_ranks


def note(run_directory: str, worker: str, peer: str, says: str) -> None:
    """Leave a slow rank for the receipt."""
    content: SlowRank = {"version": SLOW_VERSION, "worker": worker, "peer": peer, "says": says}
    number = len(list(Path(run_directory).glob("slow-*.json"))) + 1
    write_json(os.path.join(run_directory, f"slow-{number}.json"), content)


def sentences(run_directory: str, workers: Collection[str]) -> list[str]:
    """What was said about slow ranks that are among some workers, or are compared with one."""
    return [
        slow_rank["says"]
        for slow_rank in found(run_directory)
        if {slow_rank["worker"], slow_rank["peer"]}.intersection(workers)
    ]

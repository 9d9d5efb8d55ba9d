"""Finds out whether a run's driver, or its ranks under `gpuprof run`, are alive.

On Ray, ``run.json`` names the driver. Under ``gpuprof run`` each rank writes its own file, because
ranks start at different times and may be restarted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from gpuprof._artifacts.formats import RANK_VERSION, Process, RankProcess, read
from gpuprof._shim.files import write_json
from gpuprof._shim.processes import place, process_start
from gpuprof._shim.safe import make_directory
from gpuprof.errors import OutputError

_RANKS = ".ranks"


def this_process() -> Process:
    """This process's identity, so that others can check whether it is alive."""
    return {"place": place(), "pid": os.getpid(), "start": process_start(os.getpid())}


def record_rank(run_directory: str, group: str, rank: int, size: int, over: bool = False) -> None:
    """Record this rank's process, replacing any earlier start's.

    Args:
        over: whether the rank has ended, recorded for nodes that cannot see its process.
    """
    process: RankProcess = {
        "version": RANK_VERSION,
        "rank": rank,
        "size": size,
        "over": over,
        **this_process(),
    }
    # best effort: without the file nobody can tell whether the rank is alive
    with contextlib.suppress(OSError):
        ranks = os.path.join(run_directory, _RANKS)
        make_directory(ranks)
        write_json(os.path.join(ranks, f"{group}-{rank}.process"), process)


def read_ranks(run_directory: str | Path) -> tuple[list[RankProcess], list[str]]:
    """The recorded ranks, and a message for each malformed file; skips inaccessible files."""
    ranks: list[RankProcess] = []
    faults: list[str] = []
    for file in sorted(Path(run_directory, _RANKS).glob("*.process")):
        try:
            ranks.append(read(file, RankProcess, RANK_VERSION))
        except OutputError as error:
            faults.append(str(error))
        except OSError:  # not accessible from here
            pass
    return ranks, faults


def process_lives(process: Process) -> bool | None:
    """Whether a process is alive; ``None`` if it cannot be seen from here."""
    return (
        process_start(process["pid"]) == process["start"] if process["place"] == place() else None
    )


def ranks_live(ranks: Iterable[RankProcess]) -> bool | None:
    """Whether any rank of a run is alive.

    ``None`` if no rank is known to be alive, but some cannot be seen from here or have not started.
    """
    ranks = list(ranks)
    lives = {False if rank["over"] else process_lives(rank) for rank in ranks}
    if True in lives:
        return True
    return False if lives == {False} and _all_started(ranks) else None


def _all_started(ranks: Iterable[RankProcess]) -> bool:
    started: dict[int, set[int]] = {}  # by size, as a run can have several launches
    for rank in ranks:
        started.setdefault(rank["size"], set()).add(rank["rank"])
    return all(len(numbers) >= size for size, numbers in started.items())

"""Whether a run goes on: the processes that it lasts as long as, and what each has left word of.

On Ray that is the driver, in the run's ``run.json``. Under ``gpuprof run`` it is every rank's own
process, in a file of each: launches are looked at while some of their ranks have not started, and
ranks are started again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuprof._shim.files import write_json
from gpuprof._shim.processes import place, process_start

_RANKS = ".ranks"


def this_process() -> dict[str, Any]:
    """What tells others whether this process lives."""
    return {"place": place(), "pid": os.getpid(), "start": process_start(os.getpid())}


def say(run_directory: str, group: str, rank: int, size: int, over: bool = False) -> None:
    """Leave word of this process, which is a rank of the run, in place of what an earlier start of
    the rank has left.

    Args:
        size: how many ranks the launch has.
        over: whether all of the rank is over but this process, for those who cannot see it.
    """
    # without it nobody can say whether the run goes on, and it does
    with contextlib.suppress(OSError):
        path = os.path.join(run_directory, _RANKS, f"{group}-{rank}.process")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_json(path, {"rank": rank, "size": size, "over": over, **this_process()})


def goes_on(run_directory: str | Path, known: Mapping[str, Any]) -> bool | None:
    """Whether a run has not ended yet; ``None`` where that is not known, as on another node, or
    before all ranks have started.

    Args:
        known: what is written about the run.
    """
    if "workers" in known:  # its driver has written the manifest
        return False
    driver = known.get("driver")
    words = [driver] if driver is not None else list(_words(run_directory))
    lives = {_lives(word) for word in words}
    if True in lives:
        return True
    return False if lives == {False} and (driver is not None or _all_started(words)) else None


def _lives(word: Mapping[str, Any]) -> bool | None:
    if word.get("over"):
        return False
    return process_start(word["pid"]) == word["start"] if word.get("place") == place() else None


def _all_started(words: Iterable[Mapping[str, Any]]) -> bool:
    ranks: dict[int, set[int]] = {}  # by size, as a run can have launches of several
    for word in words:
        ranks.setdefault(word["size"], set()).add(word["rank"])
    return all(len(started) >= size for size, started in ranks.items())


def _words(run_directory: str | Path) -> Iterator[dict[str, Any]]:
    for file in Path(run_directory, _RANKS).glob("*.process"):
        # damaged: a rank that nothing is known of
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            word = json.loads(file.read_text())
            yield {key: word[key] for key in ("rank", "size", "over", "place", "pid", "start")}

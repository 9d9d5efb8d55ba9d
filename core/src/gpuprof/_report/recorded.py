"""What the profilers of a run recorded, span by span."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from gpuprof._artifacts.places import Place, places, run_around
from gpuprof._artifacts.records import is_own
from gpuprof._report.ranges import files_of, settings_of
from gpuprof._report.readers import Reader, reader
from gpuprof.backend import loading
from gpuprof.backend.types import RecordedTrack
from gpuprof.errors import GpuprofError


@attrs.frozen(eq=False)
class Recorded:
    """A report.

    Args:
        file: its path.
        node: where it was made.
        worker: ``<group>-<rank>``, or the file's name if the worker is not known.
        tracks: what is in it. Times are nanoseconds since the epoch, by the node's wall clock.
    """

    file: Path
    node: str
    worker: str
    tracks: Sequence[RecordedTrack]


def recorded(
    directory: Path, wanted: Callable[[Place | None, str], bool]
) -> tuple[list[Recorded], list[str]]:
    """Read the reports of a run.

    Args:
        wanted: whether to read a report, by its place in the run and its node.

    Returns:
        The reports that a backend can read, and a sentence for each that it cannot.
    """
    run = run_around(directory)
    known = places(run) if run is not None else {}

    @functools.cache
    def readers_of(folder: Path) -> list[Reader]:
        found = (reader(name, settings_of(folder)) for name in loading.catalogue().entries)
        return [one for one in found if one is not None and one.read_spans is not None]

    tasks = []
    for file in files_of([str(directory)]):
        folder = file.absolute().parent
        place = known.get((folder.name, file.name))
        if not is_own(file) and wanted(place, folder.name):
            tasks.append((file, place, readers_of(folder)))
    found, problems = [], []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (file, place, _), tracks in zip(tasks, pool.map(_read, tasks), strict=True):
            if isinstance(tracks, GpuprofError):
                problems.append(str(tracks))
            elif tracks is not None:
                worker = f"{place.group}-{place.rank}" if place is not None else file.name
                found.append(Recorded(file, file.absolute().parent.name, worker, tracks))
    return found, list(dict.fromkeys(problems))


def _read(
    task: tuple[Path, Place | None, Sequence[Reader]],
) -> list[RecordedTrack] | GpuprofError | None:
    file, _, readers = task
    try:
        for one in readers:
            tracks = one.read_spans(path=str(file)) if one.read_spans is not None else None
            if tracks is not None:
                return tracks
    except GpuprofError as error:  # such as the report of a killed worker
        return error
    return None

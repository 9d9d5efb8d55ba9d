"""Reads the spans that a run's profilers recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from gpuprof._artifacts.places import Place, places, run_around
from gpuprof._report.ranges import files_of
from gpuprof._report.readers import Reader, read_each
from gpuprof.backend.types import RecordedTrack
from gpuprof.errors import GpuprofError


@attrs.frozen(eq=False)
class Recorded:
    """A report's spans.

    Args:
        worker: ``<group>-<rank>``, or the file's name if the worker is not known.
        tracks: the report's tracks. Times are nanoseconds since the epoch on the node's wall clock.
    """

    file: Path
    node: str
    worker: str
    tracks: Sequence[RecordedTrack]


def recorded(
    directory: Path, condition: Callable[[Place | None, str], bool]
) -> tuple[list[Recorded], list[str]]:
    """Read the reports of a run.

    Args:
        condition: a function of a report's place in the run and its node. It tells whether to read
            the report.
    """
    run = run_around(directory)
    place_of = places(run) if run is not None else {}

    files = [
        file
        for file in files_of([str(directory)])
        if condition(
            place_of.get((file.absolute().parent.name, file.name)), file.absolute().parent.name
        )
    ]
    reports, problems = [], []
    for file, tracks in read_each(files, _spans):
        node = file.absolute().parent.name
        place = place_of.get((node, file.name))
        if isinstance(tracks, GpuprofError):
            problems.append(str(tracks))
        elif tracks is not None:
            worker = f"{place.group}-{place.rank}" if place is not None else file.name
            reports.append(Recorded(file, node, worker, tracks))
    return reports, list(dict.fromkeys(problems))


def _spans(file: Path, reader: Reader) -> list[RecordedTrack] | None:
    return reader.read_spans(path=str(file)) if reader.read_spans is not None else None

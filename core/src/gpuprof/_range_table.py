"""What the ranges in the reports of a run took, by name."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from tabulate import tabulate

from gpuprof import _plugins, _survey
from gpuprof._types import RangeTimes
from gpuprof.errors import ConfigError

_DEVICE = ("kernels", "copies", "memsets", "synchronization")


def files_of(paths: Sequence[str]) -> list[Path]:
    """The files that paths stand for: of a directory all that are in it.

    Raises:
        ConfigError: a path does not exist.
    """
    missing = [f"{path}: not found; expected a report, or the directory of a run" for path in paths if not Path(path).exists()]
    if missing:
        raise ConfigError(missing)
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return found


def read_ranges(files: Iterable[Path]) -> tuple[dict[str, RangeTimes], list[Path]]:
    """The ranges in all reports that an installed backend can read, by name, and the reports that have none.

    Raises:
        GpuprofError: a report cannot be read.
        ConfigError: none of the files is a report.
    """
    readers = [reader for reader in map(_survey.reader, _plugins.catalogue().entries) if reader is not None]
    durations: dict[str, list[int]] = {}
    device: dict[str, dict[str, int]] = {}
    reports = 0
    empty = []
    for file in files:
        found = next((ranges for ranges in (reader(path=str(file)) for reader in readers) if ranges is not None), None)
        reports += found is not None
        if found == []:
            empty.append(file)
        for times in found or ():
            durations.setdefault(times.name, []).extend(times.durations)
            sums = device.setdefault(times.name, {})
            for kind, nanoseconds in times.device.items():
                sums[kind] = sums.get(kind, 0) + nanoseconds
    if not reports:
        raise ConfigError(["no report that an installed backend can read is among the files; gpuprof backends lists them"])
    return {name: RangeTimes(name, tuple(durations[name]), device[name]) for name in durations}, empty


def range_table(ranges: dict[str, RangeTimes]) -> str:
    """One row a name, the longest total first. The share is of the sum of all totals; nested ranges count in each."""
    everything = sum(sum(times.durations) for times in ranges.values()) or 1
    kinds = [kind for kind in _DEVICE if any(times.device.get(kind) for times in ranges.values())]
    rows = [
        (times.name, *_statistics(times.durations, everything), *(_ms(times.device.get(kind, 0)) for kind in kinds))
        for times in sorted(ranges.values(), key=lambda times: -sum(times.durations))
    ]
    headers = ["range", "count", "total ms", "mean", "median", "min", "max", "std", "share", *(f"{kind} ms" for kind in kinds)]
    return tabulate(rows, headers, disable_numparse=True, colalign=("left", *["right"] * (len(headers) - 1)))


def range_json(ranges: dict[str, RangeTimes]) -> str:
    """The same, for programs: durations in nanoseconds."""
    return json.dumps(
        {name: {"durations": list(times.durations), "device": dict(times.device)} for name, times in ranges.items()}, indent=2
    )


def _statistics(durations: Sequence[int], everything: int) -> tuple[str, ...]:
    total = sum(durations)
    numbers = (
        total,
        statistics.fmean(durations),
        statistics.median(durations),
        min(durations),
        max(durations),
        statistics.pstdev(durations),
    )
    return (str(len(durations)), *map(_ms, numbers), f"{100 * total / everything:.1f} %")


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"

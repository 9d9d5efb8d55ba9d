"""Durations of the ranges in a run's reports, by name."""

from __future__ import annotations

import functools
import json
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from gpuprof._artifacts import runs
from gpuprof._report import readers
from gpuprof._shim.safe import regular_files
from gpuprof.backend import loading
from gpuprof.backend.types import RangeTimes
from gpuprof.errors import ConfigError, GpuprofError, ToolError

_DEVICE = ("kernels", "copies", "memsets", "synchronization")


def files_of(paths: Sequence[str]) -> list[Path]:
    """The given files, and all regular files in the given directories.

    Raises:
        ConfigError: a path does not exist.
    """
    missing = [
        f"{path}: not found; expected a report or a run directory"
        for path in paths
        if not Path(path).exists()
    ]
    if missing:
        raise ConfigError(missing)
    found: list[Path] = []
    for path in map(Path, paths):
        found += (
            sorted(Path(entry.path) for entry in regular_files(path)) if path.is_dir() else [path]
        )
    return found


def gone(paths: Sequence[str]) -> list[str]:
    """The missing reports that a run's receipt lists as complete."""
    found: list[str] = []
    for path in paths:
        about = runs.about(path)
        if about is None:
            continue
        found += about.faults
        if about.manifest is None:
            continue
        receipt = about.manifest["receipt"]
        complete = {
            row["file"] for row in receipt["rows"] if row["file"] and row["state"] == "complete"
        }
        files = sorted(os.path.relpath(file, receipt["directory"] or path) for file in complete)
        # reports outside the run directory are still on their nodes
        found += [
            f"{os.path.join(path, file)}: missing; the receipt lists it as complete"
            for file in files
            if not file.startswith("..") and not os.path.exists(os.path.join(path, file))
        ]
    return found


def read_ranges(
    files: Iterable[Path], overrides: Sequence[str] = ()
) -> tuple[dict[str, RangeTimes], list[Path], list[str]]:
    """Read the ranges in all reports of installed backends.

    A file in a run directory is read with that run's settings, but for the programs that they name:
    anybody may have written them.

    Args:
        overrides: ``key.key=value``, for keys in backends' sections.

    Returns:
        The ranges by name, the reports without ranges, and a line for each broken report.

    Raises:
        GpuprofError: no report can be read.
        ToolError: the program that reads them is missing.
        ConfigError: none of the files is a report, or the overrides are not valid.
    """
    names = loading.known_backends()
    unknown = [override for override in overrides if override.partition(".")[0] not in names]
    if unknown:
        raise ConfigError(
            [
                f"--set: {override!r} is not valid; expected SECTION.KEY=VALUE with a section of "
                f"{', '.join(names)}"
                for override in unknown
            ]
        )

    @functools.cache
    def readers_of(directory: Path) -> list[Callable[..., Any]]:
        found = (
            readers.reader(name, _settings_of(directory), overrides)
            for name in loading.catalogue().entries
        )
        return [reader for reader in found if reader is not None]

    durations: dict[str, list[int]] = {}
    device: dict[str, dict[str, int]] = {}
    reports = 0
    empty, broken = [], []
    for file in files:
        read = (reader(path=str(file)) for reader in readers_of(file.absolute().parent))
        try:
            found = next((ranges for ranges in read if ranges is not None), None)
        except (ToolError, ConfigError):
            raise
        # such as the report of a killed worker; the others are still readable
        except GpuprofError as error:
            broken.append(str(error))
            continue
        reports += found is not None
        if found == []:
            empty.append(file)
        for times in found or ():
            durations.setdefault(times.name, []).extend(times.durations)
            sums = device.setdefault(times.name, {})
            for kind, nanoseconds in times.device.items():
                sums[kind] = sums.get(kind, 0) + nanoseconds
    if not reports and broken:
        raise GpuprofError("\n".join(broken))
    if not reports:
        raise ConfigError(
            [
                (
                    "found no report that an installed backend can read; `gpuprof backends` lists "
                    "the backends"
                )
            ]
        )
    return (
        {name: RangeTimes(name, tuple(durations[name]), device[name]) for name in durations},
        empty,
        broken,
    )


def _settings_of(directory: Path) -> dict[str, Any]:
    """The settings of the run around a directory, empty if there is none."""
    abouts = map(runs.about, (directory, *directory.parents))
    return next((about.config for about in abouts if about is not None), {})


def range_table(ranges: dict[str, RangeTimes]) -> str:
    """A table with a row for each name, longest total first.

    Shares are of the sum of all totals; a nested range also counts in its parents.
    """
    everything = sum(sum(times.durations) for times in ranges.values()) or 1
    kinds = [kind for kind in _DEVICE if any(times.device.get(kind) for times in ranges.values())]
    rows = [
        (
            times.name,
            *_statistics(times.durations, everything),
            *(_ms(times.device.get(kind, 0)) for kind in kinds),
        )
        for times in sorted(ranges.values(), key=lambda times: -sum(times.durations))
    ]
    headers = [
        "range",
        "count",
        "total ms",
        "mean",
        "median",
        "min",
        "max",
        "std",
        "share",
        *(f"{kind} ms" for kind in kinds),
    ]
    return tabulate(
        rows, headers, disable_numparse=True, colalign=("left", *["right"] * (len(headers) - 1))
    )


def range_json(ranges: dict[str, RangeTimes]) -> str:
    """The ranges as JSON, with durations in nanoseconds."""
    return json.dumps(
        {
            name: {"durations": list(times.durations), "device": dict(times.device)}
            for name, times in ranges.items()
        },
        indent=2,
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

"""Reads the ranges in reports, and prints them by run, group and window, with their nesting."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from gpuprof import _tables
from gpuprof._artifacts import runs
from gpuprof._artifacts.places import Place, places, run_around
from gpuprof._report import cache
from gpuprof._report.readers import read_each
from gpuprof._shim.safe import regular_files
from gpuprof.backend import loading
from gpuprof.backend.types import RangeTimes
from gpuprof.errors import ConfigError, GpuprofError, ToolError

_INDENT = "  "
DEVICE = ("kernels", "copies", "memsets", "graphs", "synchronization")


@attrs.define
class Node:
    """The ranges of one name inside the same outer ranges.

    Args:
        name: the name as the user wrote it.
        durations: the duration of each range in nanoseconds.
        device: the nanoseconds of GPU work that calls inside the ranges started, by kind.
        children: the ranges directly inside, by name.
    """

    name: str
    durations: list[int] = attrs.field(factory=list)
    device: dict[str, int] = attrs.field(factory=dict)
    children: dict[str, Node] = attrs.field(factory=dict)

    @property
    def total(self) -> int:
        """The nanoseconds of all ranges together."""
        return sum(self.durations)

    def below(self) -> list[Node]:
        """The children, the longest first."""
        return sorted(self.children.values(), key=lambda node: -node.total)


@attrs.define
class WindowRanges:
    """The ranges of one window of one worker group, or of one of its ranks.

    Args:
        run: the run's id; empty outside of any run.
        window: the window's label, or the report's name if the window is not known.
        first_step: the window's first step; -1 for the worker's whole life.
        seconds: how long the window recorded, all ranks together; ``None`` if that is not known.
        root: a node whose children are the outermost ranges.
    """

    run: str
    group: str
    window: str
    first_step: int
    ranks: list[int] = attrs.field(factory=list)
    seconds: float | None = 0.0
    root: Node = attrs.field(factory=lambda: Node(""))

    def add(self, place: Place | None, ranges: Iterable[RangeTimes]) -> None:
        """Add the ranges of one report."""
        seconds = place.seconds if place is not None else None
        self.seconds = None if seconds is None or self.seconds is None else self.seconds + seconds
        if place is not None and place.rank not in self.ranks:
            self.ranks = sorted([*self.ranks, place.rank])
        for times in ranges:
            node = self.root
            for name in (*times.parents, times.name):
                node = node.children.setdefault(name, Node(name))
            node.durations += times.durations
            for kind, nanoseconds in times.device.items():
                node.device[kind] = node.device.get(kind, 0) + nanoseconds

    def share(self, node: Node) -> float | None:
        """A node's share of the time that the window recorded; above 1 if threads overlap.

        ``None`` if the window's time is not known.
        """
        return node.total / 1e9 / self.seconds if self.seconds else None


def files_of(paths: Sequence[str]) -> list[Path]:
    """The given files, and all regular files in the given directories."""
    missing = [
        f"{path}: not found; expected a report or a run directory"
        for path in paths
        if not Path(path).exists()
    ]
    if missing:
        raise ConfigError(missing)
    files: list[Path] = []
    for path in map(Path, paths):
        files += (
            sorted(Path(entry.path) for entry in regular_files(path)) if path.is_dir() else [path]
        )
    return files


def gone(paths: Sequence[str]) -> list[str]:
    """The missing reports that a run's receipt lists as complete."""
    faults: list[str] = []
    for path in paths:
        about = runs.about(path)
        if about is None:
            continue
        faults += about.faults
        if about.manifest is None:
            continue
        receipt = about.manifest["receipt"]
        complete = {
            row["file"] for row in receipt["rows"] if row["file"] and row["state"] == "complete"
        }
        files = sorted(os.path.relpath(file, receipt["directory"] or path) for file in complete)
        # reports outside the run directory are still on their nodes
        faults += [
            f"{os.path.join(path, file)}: missing; the receipt lists it as complete"
            for file in files
            if not file.startswith("..") and not os.path.exists(os.path.join(path, file))
        ]
    return faults


def read_ranges(
    files: Iterable[Path], overrides: Sequence[str] = (), by_rank: bool = False
) -> tuple[list[WindowRanges], list[Path], list[str]]:
    """Read the ranges in all reports of installed backends.

    A file in a run directory is read with that run's settings, except that the programs in these
    settings are not used, because anybody may have written them.

    Args:
        overrides: ``key.key=value`` for keys in backends' sections.
        by_rank: keep the ranks of a group separate.

    Returns:
        The ranges by window, the reports without ranges, and a line for each broken report.
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

    windows: dict[tuple[object, ...], WindowRanges] = {}
    places_of, run_of = functools.cache(places), functools.cache(run_around)
    reports = 0
    empty, problems = [], []
    for file, ranges in read_each(files, cache.read, overrides):
        if isinstance(ranges, ToolError):  # the program that reads all reports is missing
            raise ranges
        if isinstance(ranges, GpuprofError):
            problems.append(str(ranges))
            continue
        reports += ranges is not None
        if ranges == []:
            empty.append(file)
        if not ranges:
            continue
        run = run_of(file.absolute().parent)
        place = places_of(run).get((file.absolute().parent.name, file.name)) if run else None
        key: tuple[object, ...] = (file,)
        if place is not None:
            key = (place.run, place.group, place.windows, place.rank if by_rank else None)
        if key not in windows:
            windows[key] = (
                WindowRanges(place.run, place.group, ", ".join(place.windows), place.first_step)
                if place is not None
                else WindowRanges(run.name if run else "", "", file.name, -1)
            )
        windows[key].add(place, ranges)
    if not reports and problems:
        raise GpuprofError("\n".join(problems))
    if not reports:
        raise ConfigError(
            "found no report that an installed backend can read; `gpuprof backends` lists "
            "the backends"
        )
    in_order = sorted(
        windows.values(),
        key=lambda one: (one.run, one.group, one.first_step, one.window, one.ranks),
    )
    return in_order, empty, problems


def range_tables(windows: Sequence[WindowRanges], width: int | None = None, hint: str = "") -> str:
    """A table for each window, with a row for each range name inside each outer range."""
    several = len({window.run for window in windows}) > 1
    tables = [f"{_heading(window, several)}\n{_table(window, width, hint)}" for window in windows]
    shares = [window.share(node) or 0.0 for window in windows for _, node in _rows(window.root)]
    if any(shares):
        tables.append(_tables.legend(_SHARE[: 2 if max(shares) > 1 else 1]))
    return "\n\n".join(tables)


_SHARE = (
    "share: of the window's own time, all ranks together; a range's share contains those inside it",
    "more than 100 %: ranges of several threads ran at the same time",
)


def _heading(window: WindowRanges, with_run: bool) -> str:
    """The table's heading: ``ActorGroup of r1, step-3, ranks 0, 1: 0.412 s``."""
    of_run = f" of {window.run}" if with_run and window.run else ""
    ranks = ", ".join(map(str, window.ranks))
    who = f"{window.group}{of_run}, " if window.group else ""
    which = f", rank{'' if len(window.ranks) == 1 else 's'} {ranks}" if ranks else ""
    seconds = f": {window.seconds:.3f} s" if window.seconds else ""
    return f"{who}{window.window}{which}{seconds}"


def _table(window: WindowRanges, width: int | None, hint: str) -> str:
    rows = list(_rows(window.root))
    kinds = [kind for kind in DEVICE if any(node.device.get(kind) for _, node in rows)]
    cells = [
        (
            _INDENT * depth + node.name,
            *_statistics(node.durations, window.share(node)),
            *(_ms(node.device.get(kind, 0)) for kind in kinds),
        )
        for depth, node in rows
    ]
    names = ["range", "count", "total ms", "mean", "median", "min", "max", "std", "share"]
    headers = [*names, *(f"{kind} ms" for kind in kinds)]
    return _tables.table(
        headers,
        cells,
        right=headers[1:],
        optional=("std", "median", "min", "mean", "max"),
        shorten={"range": "end"},
        width=width,
        hint=hint,
    )


def _rows(node: Node, depth: int = 0) -> Iterator[tuple[int, Node]]:
    for child in node.below():
        yield depth, child
        yield from _rows(child, depth + 1)


def range_json(windows: Sequence[WindowRanges]) -> str:
    """The ranges as JSON, with durations in nanoseconds and shares as fractions."""
    content = [
        {
            "run": window.run or None,
            "group": window.group or None,
            "ranks": window.ranks,
            "window": window.window,
            "seconds": window.seconds,
            "ranges": _to_json(window, window.root),
        }
        for window in windows
    ]
    return json.dumps({"version": 1, "windows": content}, indent=2)


def _to_json(window: WindowRanges, node: Node) -> list[dict[str, Any]]:
    return [
        {
            "name": child.name,
            "durations": child.durations,
            "share": window.share(child),
            "device": child.device,
            "children": _to_json(window, child),
        }
        for child in node.below()
    ]


def _statistics(durations: Sequence[int], share: float | None) -> tuple[str, ...]:
    if not durations:  # a parent that was still open when the report ended
        return ("0", *[""] * 7)
    # sorting once and computing in integers is exact, and takes a third of the time of `statistics`
    values = sorted(durations)
    count, total = len(values), sum(values)
    squares = sum(map(operator.mul, values, values))
    numbers = (
        total,
        total / count,
        (values[(count - 1) // 2] + values[count // 2]) / 2,
        values[0],
        values[-1],
        math.sqrt(count * squares - total * total) / count,
    )
    part = "" if share is None else f"{100 * share:.1f} %"
    return (str(len(durations)), *map(_ms, numbers), part)


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3f}"

"""Finds out to which run, worker and windows a report belongs."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import attrs

from gpuprof._artifacts import manifest, runs
from gpuprof._artifacts.formats import AboutFile
from gpuprof._artifacts.records import read_nodes

Name = tuple[str, str]
"""The node of a file, and the file's name on it."""


@attrs.define
class Place:
    """Where a report belongs.

    Args:
        windows: the labels of the windows that the report holds.
        first_step: the first step of these windows; -1 for the worker's whole life.
        seconds: how long the windows recorded in total; ``None`` if that is unknown for any.
        opened: when the first window opened, in seconds since the epoch; ``-inf`` if that is
            unknown for any.
        closed: when the last window closed, in seconds since the epoch; ``inf`` if that is unknown
            for any.
    """

    run: str
    group: str
    rank: int
    windows: tuple[str, ...] = ()
    first_step: int = -1
    seconds: float | None = 0.0
    opened: float = inf
    closed: float = -inf

    def add(self, window: AboutFile) -> None:
        """Add a window that the report holds."""
        if window["window"] in self.windows:
            return
        first = not self.windows
        self.windows = (*self.windows, window["window"])
        step, seconds = window.get("step"), window.get("seconds")
        step = -1 if step is None else step
        self.first_step = step if first else min(step, self.first_step)
        self.seconds = None if seconds is None or self.seconds is None else self.seconds + seconds
        opening, closing = window.get("opened"), window.get("closed")
        self.opened = min(self.opened, -inf if opening is None else opening)
        self.closed = max(self.closed, inf if closing is None else closing)


def places(directory: Path) -> dict[Name, Place]:
    """The places of a run's reports with known windows, by the report's node and name.

    Args:
        directory: the run directory, which may have been moved.
    """
    about = runs.about(directory)
    if about is None:
        return {}
    place_of: dict[Name, Place] = {}

    def add(name: Name, window: AboutFile) -> None:
        place = place_of.setdefault(name, Place(about.run, window["group"], window["rank"]))
        place.add(window)

    windows: dict[tuple[str, str, str], AboutFile] = {}
    for record in read_nodes(str(directory)):
        for start in record.starts:
            for window, files in manifest.reports(start):
                windows[record.node, start.name, window["window"]] = window
                for file in files:
                    add((record.node, os.path.basename(file)), window)
    if about.manifest is None:
        return place_of
    # The manifest also has what was known on the nodes at the run's end but did not come home.
    for entry in about.manifest["files"]:
        if {"window", "group", "rank"} <= entry.keys():
            add((entry["node"], os.path.basename(entry["file"])), entry)
    for row in about.manifest["receipt"]["rows"]:  # one for each window of a report
        window_of_row = windows.get((row["node"], row["worker"], row["window"]))
        if row["file"] and window_of_row is not None:
            add((row["node"], os.path.basename(row["file"])), window_of_row)
    return place_of


def run_around(directory: Path) -> Path | None:
    """The run directory that contains the given directory, or is that directory; else ``None``."""
    parents = (directory.absolute(), *directory.absolute().parents)
    return next((parent for parent in parents if runs.about(parent)), None)

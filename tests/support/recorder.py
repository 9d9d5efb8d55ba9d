"""A backend that records its calls and fails on demand, and rows of a plan with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
from gpuprof._shim.row import Row

SOURCE = """
import contextlib, pathlib, sys, attrs, gpuprof.backend
events = []

@attrs.frozen
class Options:
    fail: str = ""
    exits: str = ""
    paths: bool = False

class Recorder:
    Options = Options
    name = "backend"
    def __init__(self, options=Options()):
        self.fail = options.fail
        self.exits = options.exits
        self.paths = options.paths
    def note(self, event):
        events.append(event)
        if event.split(" ")[0] in self.fail.split(","):
            raise RuntimeError(f"{event} failed")
        if event.split(" ")[0] == self.exits:
            sys.exit(3)
    @gpuprof.backend.hookimpl
    def probe(self):
        self.note("probe")
    @gpuprof.backend.hookimpl
    def start_capture(self, window):
        self.note(f"start {window.label}")
    @gpuprof.backend.hookimpl
    def stop_capture(self, window):
        self.note(f"stop {window.label}")
        file = f"/files/{window.label}"
        return [pathlib.Path(file) if self.paths else file]
    @gpuprof.backend.hookimpl
    def open_range(self, name, window):
        self.note(f"range {name} {window.label}")
        return contextlib.nullcontext()

class Extra:
    @gpuprof.backend.hookimpl
    def start_capture(self, window):
        events.append(f"extra start {window.label}")
    @gpuprof.backend.hookimpl
    def stop_capture(self, window):
        events.append(f"extra stop {window.label}")
        return [f"/files/{window.label}.extra"]

class BrokenExtra(Extra):
    @gpuprof.backend.hookimpl
    def start_capture(self, window):
        events.append(f"extra start {window.label}")
        raise OSError("extra failed")
"""


@attrs.frozen
class Recorder:
    """The installed backend.

    Args:
        module: its name.
        directory: where its runs go.
    """

    module: str
    directory: Path

    @property
    def events(self) -> list[str]:
        """What it was told, in order; the same list for as long as it is installed."""
        __import__(self.module)
        events: list[str] = sys.modules[self.module].events
        return events

    def row(self, **more: Any) -> Row:
        """A worker's row, with windows at steps 2 and 5 to 6."""
        return {
            "version": 1,
            "run": "run",
            "group": "A",
            "rank": 0,
            "output_dir": str(self.directory),
            "has_gpu": False,
            "profiled": True,
            "windows": [(1, 2, 3), (2, 5, 7)],
            "discrete": False,
            "discrete_labels": ["*"],
            "max_windows": 32,
            "file_name": None,
            "backend": "recorder",
            "options": {},
            "plugins": [],
            "on_error": "disable",
            **more,
        }

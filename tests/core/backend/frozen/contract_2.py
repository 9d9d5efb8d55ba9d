"""A backend of version 2 of the contract, with every hook and every argument.

Never changed: each later gpuprof has to run it as it stands.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil

import attrs
from gpuprof.backend import (
    Check,
    Collected,
    RangeTimes,
    RecordedTrack,
    Tool,
    hookimpl,
    move,
    option,
)
from gpuprof.errors import ConfigError

EXTENSION = ".frozen.json"


@attrs.frozen
class FrozenOptions:
    title: str = option("The first line.", default="frozen")
    program: str = option("Program in front of the worker.", default="env", program=True)
    env: dict[str, str] = option("Variables for workers.", factory=dict, known=("FROZEN_",))

    def __attrs_post_init__(self) -> None:
        if not self.title:
            raise ConfigError([f"title: {self.title!r} is not valid; expected a text"])


class Frozen:
    contract = 2
    exclusive = ("FROZEN",)
    Options = FrozenOptions

    def __init__(self, options):
        self.options = options
        self.ranges = None

    @hookimpl
    def render_command(self, worker, command, tool):
        assert worker.directory
        assert command.script in (True, False)
        assert command.python in (True, False)
        return [tool.path, *command.interpreter, *command.arguments]

    @hookimpl
    def inject_env(self, worker, tool):
        return {"FROZEN_WORKER": worker.name, **self.options.env}

    @hookimpl
    def start_capture(self, worker, window, tool):
        assert tool.features == {"kind": "frozen"}
        self.ranges = []

    @hookimpl
    def stop_capture(self, worker, window, tool):
        ranges, self.ranges = self.ranges, None
        if ranges is None:
            return
        with open(self._raw(worker, window), "w") as file:
            json.dump([self.options.title, os.environ["FROZEN_WORKER"], ranges], file)
        return

    @hookimpl
    def open_range(self, worker, window, name, crosses_tasks):
        if self.ranges is not None:
            self.ranges.append([name, crosses_tasks])
        return contextlib.nullcontext()

    @hookimpl
    def probe(self):
        path = shutil.which(self.options.program)
        return Tool(path, "1.0", {"kind": "frozen"}, ["locks"], ["*.frozen"]) if path else None

    @hookimpl
    def missing_tool(self):
        return "env is missing: install coreutils"

    @hookimpl
    def diagnose(self, worker, tool, purpose):
        if purpose != "doctor":
            assert purpose in ("plan", "start")
            return [Check("options", True, f"{tool.path} takes them", "", "title")]
        return [Check("frozen", True, f"{tool.version} for {worker.name}")]

    @hookimpl
    def plan_notes(self, worker, tool):
        return [f"{tool.path} only runs the worker"]

    @hookimpl
    def expected_files(self, worker, windows):
        return {window.number: worker.final_stem(window) + EXTENSION for window in windows}

    @hookimpl
    def collect_files(self, worker, windows, files, ended, scratch):
        found = {}
        for window in windows:
            final = move(self._raw(worker, window), worker.final_stem(window), EXTENSION)
            if final is not None:
                found[window.number] = [final]
        return Collected(found, "")

    @hookimpl
    def check_report(self, path):
        if not path.endswith(EXTENSION):
            return None
        with open(path) as file:
            return None if file.read().endswith("]]") else "was cut short"

    @hookimpl
    def read_ranges(self, path):
        if not path.endswith(EXTENSION):
            return None
        with open(path) as file:
            _, _, ranges = json.load(file)
        return [RangeTimes(name, (1,), {}, ()) for name, _ in ranges]

    @hookimpl
    def read_spans(self, path):
        if not path.endswith(EXTENSION):
            return None
        with open(path) as file:
            _, _, ranges = json.load(file)
        return [RecordedTrack("ranges", [(name, 1, 2) for name, _ in ranges], 0, 0, "frozen")]

    def _raw(self, worker, window):
        return f"{worker.directory}/{worker.file_stem}.{window.number}.raw"

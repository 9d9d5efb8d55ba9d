"""Variables only: glibc's own tracing of the dynamic loader, for any program."""

from __future__ import annotations

import glob
import os
import platform
import re

import attrs
from gpuprof.backend import Check, Collected, Tool, Window, hookimpl, move, option
from gpuprof.errors import ConfigError

EXTENSION = ".ld.txt"
WHOLE_LIFE = Window(1, None, None)
KINDS = ("statistics", "libs", "files", "versions")
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


@attrs.frozen
class VariablesOptions:
    """What the dynamic loader tells."""

    show: list[str] = option(
        "What to record: statistics, libs, files, versions.", factory=lambda: ["statistics", "libs"]
    )

    def __attrs_post_init__(self) -> None:
        wrong = [kind for kind in self.show if kind not in KINDS]
        if wrong or not self.show:
            raise ConfigError(
                [f"show: {self.show} is not valid; expected some of {', '.join(KINDS)}"]
            )


class VariablesBackend:
    """Sets LD_DEBUG for the worker's whole life; each process writes a file of its own."""

    contract = 2
    Options = VariablesOptions

    def __init__(self, options):
        self._options = options

    def _raw(self, worker):
        return f"{worker.directory}/{worker.file_stem}.ld"

    @hookimpl
    def inject_env(self, worker):
        return {"LD_DEBUG": ",".join(self._options.show), "LD_DEBUG_OUTPUT": self._raw(worker)}

    @hookimpl
    def expected_files(self, worker, windows):
        return {window.number: worker.final_stem(WHOLE_LIFE) + EXTENSION for window in windows}

    @hookimpl
    def collect_files(self, worker, windows, ended):
        found = self._collect(worker, windows, ended)
        return Collected(found) if found else None

    def _collect(self, worker, windows, ended):
        """The worker's own file first, then those of its children."""
        if not ended or not windows:
            return None
        raw = self._raw(worker)
        pattern = re.compile(re.escape(raw) + r"\.(\d+)")
        files = [file for file in glob.glob(glob.escape(raw) + ".*") if pattern.fullmatch(file)]
        own = f"{raw}.{worker.pid}"
        files.sort(key=lambda file: (file != own, os.stat(file).st_mtime_ns, file))
        stem = worker.final_stem(WHOLE_LIFE)
        finals = [final for file in files if (final := move(file, stem, EXTENSION))]
        return {window.number: finals for window in windows} if finals else None

    @hookimpl
    def plan_notes(self, worker):
        notes = ["programs that are linked statically leave no file"]
        if worker.windows and worker.windows[0].start is not None:
            notes.append("the loader is traced for the whole life of a worker, not in steps")
        return notes

    @hookimpl
    def probe(self):
        for path in LOADERS:
            if os.path.exists(path):
                return Tool(path, platform.libc_ver()[1] or None)
        return None

    @hookimpl
    def missing_tool(self):
        return "the loader of glibc was not found; take an image with glibc, such as debian"

    @hookimpl
    def diagnose(self, tool, purpose):
        return [Check("loader", True, f"{tool.path} {tool.version}")]

    @hookimpl
    def check_report(self, path):
        path = os.fspath(path)
        if not path.endswith(EXTENSION):
            return None
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            if not file.tell():
                return "is empty"
            file.seek(-1, os.SEEK_END)
            return None if file.read() == b"\n" else "was cut short"

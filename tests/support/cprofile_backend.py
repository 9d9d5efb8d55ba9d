"""A backend for cProfile, written from the page "Write a backend" alone.

It is a module of the worker's Python, as memray is, and loses the exit code, as memray does not.
"""

from __future__ import annotations

import marshal
import platform

import attrs
from gpuprof.backend import (
    Backend,
    Collected,
    Command,
    Tool,
    Window,
    Worker,
    hookimpl,
    move,
)
from gpuprof.errors import ConfigError

EXTENSION = ".pstats"


@attrs.frozen
class CProfileOptions:
    """cProfile has none that act on its file."""


class CProfileBackend(Backend[CProfileOptions]):
    """Runs a script under Python's own cProfile."""

    contract = 2
    Options = CProfileOptions

    @hookimpl
    def render_command(self, worker: Worker, command: Command) -> list[str]:
        if not command.script:
            raise ConfigError(["backend: cprofile runs Python scripts only"])
        cprofile = ["-m", "cProfile", "-o", self._raw_file(worker)]
        return [*command.interpreter, *cprofile, *command.keep_exit_code, *command.arguments]

    def _raw_file(self, worker: Worker) -> str:
        return f"{worker.directory}/{worker.file_stem}.cprofile"

    @hookimpl
    def probe(self) -> Tool:
        import cProfile

        return Tool(cProfile.__file__, platform.python_version())

    @hookimpl
    def missing_tool(self) -> str:
        return "cProfile is missing: install all of Python's standard library"

    @hookimpl
    def plan_notes(self, worker: Worker) -> list[str]:
        notes = ["cProfile sees the main thread only"]
        if worker.windows and not worker.lifetime:
            notes.append("cProfile records the whole life of a worker")
        return notes

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        return {window.number: worker.final_stem() + EXTENSION for window in windows}

    @hookimpl
    def collect_files(
        self, worker: Worker, windows: tuple[Window, ...], ended: bool
    ) -> Collected | None:
        if not ended or not windows:
            return None
        final = move(self._raw_file(worker), worker.final_stem(), EXTENSION)
        return Collected({window.number: [final] for window in windows} if final else {})

    @hookimpl
    def check_report(self, path: str) -> str | None:
        if not path.endswith(EXTENSION):
            return None
        try:
            with open(path, "rb") as file:
                marshal.load(file)
        except (EOFError, ValueError, TypeError):
            return "was cut short"
        return None

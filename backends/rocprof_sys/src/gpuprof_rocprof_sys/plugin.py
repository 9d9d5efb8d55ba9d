"""The hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpuprof.backend import Command, Tool, Window, Worker, hookimpl

from gpuprof_rocprof_sys import _command, _environment, _notes, _outputs, _preflight, _ranges, _tool
from gpuprof_rocprof_sys._gate import Gate
from gpuprof_rocprof_sys._options import RocprofSysOptions


class RocprofSysBackend:
    """Workers run under AMD's ROCm Systems Profiler, which writes one trace for the life of each
    process.
    """

    Options = RocprofSysOptions

    def __init__(self, options: RocprofSysOptions) -> None:
        self._options = options
        self._gate = Gate(options.python_frames)

    @hookimpl
    def render_command(self, worker: Worker, command: Command, tool: Tool) -> list[str]:
        """``env … rocprof-sys-python -b … --``; the worker's script follows."""
        return _command.render(worker, command, tool, self._options)

    @hookimpl
    def inject_env(self, worker: Worker, tool: Tool) -> dict[str, str | None]:
        """Output directory and prefix, and explicit defaults: they differ between releases."""
        return _environment.environment(worker, tool, self._options)

    @hookimpl
    def start_capture(self, worker: Worker) -> None:
        """Begin the range that selects what is recorded, where the release can select."""
        if not worker.lifetime:
            self._gate.open()

    @hookimpl
    def stop_capture(self) -> None:
        """End it. The trace is written when the process ends."""
        self._gate.close()

    @hookimpl
    def open_range(self, name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        """A roctx range, or a region of the tool's own."""
        return _ranges.open_range(name, crosses_tasks)

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for the launcher, and ask its neighbour for the release."""
        return _tool.find(self._options.program)

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to get it."""
        return _tool.missing(self._options.program)

    @hookimpl
    def preflight(self, worker: Worker, tool: Tool) -> tuple[str, str] | None:
        """Run a small script: whatever the exit code says, it must have run and a trace must be
        there.
        """
        return _preflight.refusal(self, worker, tool)

    @hookimpl
    def plan_notes(self, worker: Worker, tool: Tool) -> list[str]:
        """Whole-process capture, and what the release does not have."""
        return _notes.notes(worker, tool, self._options)

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        """One trace of the whole process, in which all windows are."""
        return _outputs.expected(worker, windows, self._options.env)

    @hookimpl
    def recover(
        self, worker: Worker, windows: tuple[Window, ...], ended: bool
    ) -> dict[int, list[str]] | None:
        """When the worker has ended, and only if all that the metadata lists is there."""
        return _outputs.recover(worker, windows, self._options.env) if ended else None

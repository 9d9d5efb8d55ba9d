"""The backend's hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpuprof.backend import Check, Collected, Command, Purpose, Tool, Window, Worker, hookimpl

from gpuprof_rocprof_sys import _command, _environment, _notes, _outputs, _preflight, _ranges, _tool
from gpuprof_rocprof_sys._gate import Gate
from gpuprof_rocprof_sys._options import RocprofSysOptions


class RocprofSysBackend:
    """Runs workers under AMD's ROCm Systems Profiler, which writes one trace per process."""

    contract = 2
    Options = RocprofSysOptions

    def __init__(self, options: RocprofSysOptions) -> None:
        self._options = options
        self._gate = Gate(options.python_frames)

    @hookimpl
    def render_command(self, worker: Worker, command: Command, tool: Tool) -> list[str]:
        """Render ``env … rocprof-sys-python -b … -- <script>``."""
        return _command.render(worker, command, tool, self._options)

    @hookimpl
    def inject_env(self, worker: Worker, tool: Tool) -> dict[str, str | None]:
        """Set the output's directory and prefix, and defaults that differ between releases."""
        return _environment.environment(worker, tool, self._options)

    @hookimpl
    def start_capture(self, worker: Worker) -> None:
        """Start the window's range, outside of which newer releases record nothing."""
        if not worker.lifetime:
            self._gate.open()

    @hookimpl
    def stop_capture(self) -> None:
        """End the window's range. The tool writes the trace when the process ends."""
        self._gate.close()

    @hookimpl
    def open_range(self, name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        """Open a roctx range, or one of the tool's own regions."""
        return _ranges.open_range(name, crosses_tasks)

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for the launcher and its release."""
        return _tool.find(self._options.program)

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to install the tool."""
        return _tool.missing(self._options.program)

    @hookimpl
    def diagnose(self, worker: Worker, tool: Tool, purpose: Purpose) -> list[Check]:
        """Run a small script: it must run and leave a trace. The tool cannot just read options."""
        reason = _preflight.refusal(self, worker, tool) if purpose == "start" else None
        if reason is None:
            return []
        key, words = reason
        return [Check("options", False, words, "change the option that the tool names", key)]

    @hookimpl
    def plan_notes(self, worker: Worker, tool: Tool) -> list[str]:
        """Explain whole-process capture, and what the installed release lacks."""
        return _notes.notes(worker, tool, self._options)

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        """Name one trace of the whole process, with all windows in it."""
        return _outputs.expected(worker, windows, self._options.env)

    @hookimpl
    def collect_files(
        self, worker: Worker, windows: tuple[Window, ...], ended: bool
    ) -> Collected | None:
        """Name the ended worker's trace, if all files of the metadata are complete."""
        if not ended:
            return None
        return Collected(_outputs.collect(worker, windows, self._options.env))

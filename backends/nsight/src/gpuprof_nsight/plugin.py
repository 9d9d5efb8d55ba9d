"""The hooks."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gpuprof import Command, Tool, Window, Worker, hookimpl

from gpuprof_nsight import _command, _ranges, _tool
from gpuprof_nsight._options import NsightOptions


class NsightBackend:
    """Workers run under `nsys profile`; windows are gated by an NVTX range."""

    Options = NsightOptions

    def __init__(self, options: NsightOptions) -> None:
        self._options = options
        self._gate = _ranges.Gate()

    @hookimpl
    def render_command(self, worker: Worker, command: Command, tool: Tool) -> list[str]:
        """``nsys profile … <command>``."""
        return _command.render(worker, command, tool, self._options)

    @hookimpl
    def inject_env(self, worker: Worker) -> dict[str, str | None]:
        """The gate's range has no registered name, which nsys ignores unless it is told not to."""
        gate: dict[str, str | None] = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if _command.gated(worker, self._options) else {}
        return {**gate, **self._options.env}

    @hookimpl
    def start_capture(self, worker: Worker) -> None:
        """Open the gate."""
        if _command.gated(worker, self._options):
            self._gate.open()

    @hookimpl
    def stop_capture(self) -> None:
        """Close the gate; nsys names the files only when all windows are done."""
        self._gate.close()

    @hookimpl
    def open_range(self, window: Window, name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        """An NVTX range."""
        return _ranges.open_range(name, window.start, crosses_tasks)

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for nsys."""
        return _tool.find(self._options.executable)

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to install nsys."""
        return _tool.missing(self._options.executable)

    @hookimpl
    def plan_notes(self, worker: Worker) -> list[str]:
        """Sampling without a GPU, and capture ranges of the user's own."""
        return _command.notes(worker, self._options)

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        """Nsys numbers the reports of a run in the order of capture, and leaves the number out when there is only one."""
        stem = f"{worker.directory}/{worker.file_stem}"
        if len(windows) == 1 or not _command.gated(worker, self._options):
            return {window.number: f"{stem}.nsys-rep" for window in windows}
        return {window.number: f"{stem}.{position}.nsys-rep" for position, window in enumerate(windows, 1)}

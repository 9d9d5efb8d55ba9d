"""The hooks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import attrs
from gpuprof import Check, Command, RangeTimes, Tool, Window, Worker, hookimpl

from gpuprof_nsight import _command, _diagnose, _gates, _leftovers, _names, _preflight, _ranges, _recover, _tool
from gpuprof_nsight._fitting import advice, fitting, too_new
from gpuprof_nsight._options import NsightOptions
from gpuprof_nsight._read import read
from gpuprof_nsight._trial import shared_folders

Windows = tuple[Window, ...]


class NsightBackend:
    """Workers run under nsys; windows are opened and closed by one of three gates."""

    Options = NsightOptions
    exclusive = ("CUPTI",)

    def __init__(self, options: NsightOptions) -> None:
        self._options = options
        self._gate: _gates.Gate | None = None

    @hookimpl
    def render_command(self, worker: Worker, command: Command, tool: Tool) -> list[str]:
        """``nsys profile … <command>``, or ``nsys launch`` for the session gate."""
        return _command.render(worker, command, tool, fitting(self._options, tool))

    @hookimpl
    def inject_env(self, worker: Worker) -> dict[str, str | None]:
        """The gate's range has no registered name, which nsys ignores unless it is told not to."""
        nvtx = _gates.choose(worker, self._options).gate == "nvtx"
        gate: dict[str, str | None] = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if nvtx else {}
        return {**gate, **self._options.env}

    @hookimpl
    def start_capture(self, worker: Worker, window: Window) -> None:
        """Open the gate."""
        if self._gate is None:
            self._gate = _gates.make(worker, self._options)
        self._gate.open(worker, window)
        # Last: NVTX that comes up just before `nsys start` was missing in more reports than after it. See the docs' page on nsys.
        self._ranges = _ranges.Ranges(worker.group, window.start)

    @hookimpl
    def stop_capture(self, worker: Worker, window: Window) -> None:
        """Close the gate. `recover` has the files."""
        if self._gate is not None:
            self._gate.close(worker, window)

    @hookimpl
    def open_range(self, worker: Worker, window: Window, name: str, crosses_tasks: bool) -> AbstractContextManager[object]:
        """An NVTX range."""
        return self._ranges.open(name, crosses_tasks)

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for nsys."""
        return _tool.find(self._options.executable)

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to install nsys."""
        return _tool.missing(self._options.executable)

    @hookimpl
    def shared_temporary(self, tool: Tool) -> list[str]:
        """Where nsys 2022.4 has its lock."""
        return shared_folders(tool)

    @hookimpl
    def worthless_temporary(self) -> list[str]:
        """How its processes have ended."""
        return ["nsys_termination_status_*"]

    @hookimpl
    def preflight(self, worker: Worker, tool: Tool) -> tuple[str, str] | None:
        """Run the options on `true`."""
        return _preflight.refusal(worker, tool, fitting(self._options, tool))

    @hookimpl
    def diagnose(self, worker: Worker, tool: Tool) -> list[Check]:
        """A range in a report, the releases of nvtx and nsys, sampling, a GPU."""
        return list(_diagnose.checks(worker, tool, self._options))

    @hookimpl
    def plan_notes(self, worker: Worker, tool: Tool) -> list[str]:
        """The gate, sampling without a GPU, capture ranges of the user's own, and what the options cost."""
        rendered, _ = _command.effective(worker, fitting(self._options, tool))
        return _command.notes(worker, fitting(self._options, tool), tool) + advice(
            worker, rendered, too_new(self._options, tool), tool
        )

    @hookimpl
    def expected_files(self, worker: Worker, windows: Windows) -> dict[int, str]:
        """A report for each window that nsys records."""
        reports = _recover.expected_reports(self._named(worker), windows, self._options)
        return {number: file for number, (file,) in reports.items()}

    @hookimpl
    def read_ranges(self, path: str) -> list[RangeTimes] | None:
        """What took how long, from a report."""
        if not path.endswith(_names.EXTENSION):
            return None
        return read(path, self._options.executable).range_times(_gates.DOMAIN)

    @hookimpl
    def recover(
        self, worker: Worker, windows: Windows, files: Mapping[int, list[str]], ended: bool, scratch: str, tool: str
    ) -> dict[int, list[str]]:
        """Name the reports that are final; in the end, import what nsys has left unfinished."""
        worker = self._named(worker)
        named = _recover.name_reports(worker, windows, self._options, ended)
        if ended and scratch:
            reports = [held for _, held in _recover.raw_reports(worker, windows, self._options)]
            missing = [held for held in reports if held[0].number not in {*named, *files}]
            named |= _leftovers.import_leftovers(worker, missing, scratch, tool)
        return named

    def _named(self, worker: Worker) -> Worker:
        """The user's own ``o`` is the template of the names."""
        return attrs.evolve(worker, file_name=self._options.file_name or worker.file_name)

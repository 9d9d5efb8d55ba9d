"""The backend's hooks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager

import attrs
from gpuprof.backend import (
    Check,
    Collected,
    Command,
    Purpose,
    RangeTimes,
    RecordedTrack,
    Tool,
    Window,
    Worker,
    hookimpl,
)

from gpuprof_nsight import _names
from gpuprof_nsight._checks.diagnose import checks
from gpuprof_nsight._checks.preflight import refusal
from gpuprof_nsight._command import render
from gpuprof_nsight._command.fitting import advice, fitting, too_new
from gpuprof_nsight._command.gate import choose
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._gates import make
from gpuprof_nsight._nsys import find
from gpuprof_nsight._nvtx import ranges
from gpuprof_nsight._reports import leftovers
from gpuprof_nsight._reports.damage import damage
from gpuprof_nsight._reports.export import exported
from gpuprof_nsight._reports.name import expected_reports, name_reports, raw_reports
from gpuprof_nsight._reports.read import Report

Windows = tuple[Window, ...]

_READING = threading.Lock()
"""One report is read while others are exported: fetching rows takes the interpreter's lock anew for
each, so two threads that do it hinder each other.
"""


class NsightBackend:
    """Runs workers under nsys and opens and closes windows through one of three gates."""

    contract = 2
    Options = NsightOptions
    exclusive = ("CUPTI",)

    def __init__(self, options: NsightOptions) -> None:
        self._options = options
        self._gate: make.Gate | None = None
        self._ranges: ranges.Opener | None = None

    @hookimpl
    def render_command(self, worker: Worker, command: Command, tool: Tool) -> list[str]:
        """Render ``nsys profile … <command>``, or ``nsys launch`` for the session gate."""
        return render.render(worker, command, tool, fitting(self._options, tool))

    @hookimpl
    def inject_env(self, worker: Worker) -> dict[str, str | None]:
        """Make nsys accept the gate's unregistered range name; add the user's ``env``."""
        nvtx = choose(worker, self._options).gate == "nvtx"
        gate: dict[str, str | None] = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if nvtx else {}
        return {**gate, **self._options.env}

    @hookimpl
    def start_capture(self, worker: Worker, window: Window) -> None:
        """Open the gate."""
        if self._gate is None:
            self._gate = make.make(worker, self._options)
        self._gate.open(worker, window)
        # After opening the gate: reports lose more ranges if NVTX is initialised just before
        # `nsys start`. See docs/nsight.md.
        self._ranges = ranges.make(worker.group, window.start)

    @hookimpl
    def stop_capture(self, worker: Worker, window: Window) -> None:
        """Close the gate. `collect_files` returns the files."""
        if self._gate is not None:
            self._gate.close(worker, window)

    @hookimpl
    def open_range(
        self, worker: Worker, window: Window, name: str, crosses_tasks: bool
    ) -> AbstractContextManager[object]:
        """Open an NVTX range, even in a child process, which starts no capture."""
        if self._ranges is None:
            self._ranges = ranges.make(worker.group, window.start)
        return self._ranges.open(name, crosses_tasks)

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for nsys."""
        return find.find(self._options.executable)

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to install nsys."""
        return find.missing(self._options.executable)

    @hookimpl
    def diagnose(self, worker: Worker, tool: Tool, purpose: Purpose) -> list[Check]:
        """Have nsys read the options, or run the program `true` with them.

        For the doctor, check a range in a report, the releases of nvtx and nsys, sampling and the
        GPU.
        """
        if purpose == "doctor":
            return list(checks(worker, tool, self._options))
        refusal_reason = refusal(worker, tool, fitting(self._options, tool), purpose == "start")
        if refusal_reason is None:
            return []
        key, words = refusal_reason
        return [Check("options", False, words, "change the option that nsys names", key)]

    @hookimpl
    def plan_notes(self, worker: Worker, tool: Tool) -> list[str]:
        """Explain the gate, changed or dropped options, and what the options cost."""
        effective_options, _ = render.effective(worker, fitting(self._options, tool))
        return render.notes(worker, fitting(self._options, tool), tool) + advice(
            worker, effective_options, too_new(self._options, tool), tool
        )

    @hookimpl
    def expected_files(self, worker: Worker, windows: Windows) -> dict[int, str]:
        """Name one report for each window that nsys records."""
        reports = expected_reports(self._named(worker), windows, self._options)
        return {number: file for number, (file,) in reports.items()}

    @hookimpl
    def read_ranges(self, path: str) -> list[RangeTimes] | None:
        """Read the ranges' durations from a report."""
        if not path.endswith(_names.EXTENSION):
            return None
        with exported(path, self._options.executable) as database, _READING:
            return Report(database).range_times(_names.DOMAIN)

    @hookimpl
    def read_spans(self, path: str) -> list[RecordedTrack] | None:
        """Read everything in a report but the gate's range."""
        if not path.endswith(_names.EXTENSION):
            return None
        with exported(path, self._options.executable) as database, _READING:
            return Report(database).recorded_tracks(_names.DOMAIN, _names.GATE_DOMAIN)

    @hookimpl
    def check_report(self, path: str) -> str | None:
        """Look for the beginning and the end of a report, as nsys does."""
        return damage(path) if path.endswith(_names.EXTENSION) else None

    @hookimpl
    def collect_files(
        self,
        worker: Worker,
        windows: Windows,
        files: Mapping[int, list[str]],
        ended: bool,
        scratch: str,
    ) -> Collected:
        """Name the final reports; after the worker's end, import unfinished captures too."""
        worker = self._named(worker)
        final_names = name_reports(worker, windows, self._options, ended)
        if ended and scratch:
            reports = raw_reports(worker, windows, self._options)
            missing = [
                (raw_name, group)
                for raw_name, group in reports
                if group[0].number not in {*final_names, *files}
            ]
            nsys = find.locate(self._options.executable) or self._options.executable
            collection = leftovers.import_leftovers(worker, missing, scratch, nsys)
            return Collected({**final_names, **collection.files}, collection.problem)
        return Collected(final_names)

    def _named(self, worker: Worker) -> Worker:
        """The worker, with the user's ``o`` option, if set, as its file name template."""
        return attrs.evolve(worker, file_name=self._options.file_name or worker.file_name)

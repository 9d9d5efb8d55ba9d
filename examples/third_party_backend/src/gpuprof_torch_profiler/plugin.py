"""The hooks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from contextlib import AbstractContextManager, nullcontext

from gpuprof.backend import RecordedTrack, Tool, Window, Worker, hookimpl

from gpuprof_torch_profiler._options import TorchProfilerOptions
from gpuprof_torch_profiler._read import read_tracks
from gpuprof_torch_profiler._trace import EXTENSION, Trace


class TorchProfilerBackend:
    """Runs torch.profiler inside a worker while a window is open; changes no command."""

    contract = 2
    Options = TorchProfilerOptions
    exclusive = ("CUPTI",)

    def __init__(self, options: TorchProfilerOptions) -> None:
        self._options = options
        self._trace: Trace | None = None

    @hookimpl
    def start_capture(self, worker: Worker, window: Window) -> None:
        """Start the profiler."""
        scratch = f"{worker.directory}/{worker.file_stem}.window-{window.number}"
        self._trace = Trace(self._options, scratch, worker.final_stem(window))
        self._trace.start()

    @hookimpl
    def stop_capture(self) -> list[str] | None:
        """Stop it, and write the trace."""
        trace, self._trace = self._trace, None
        return trace.stop() if trace is not None else None

    @hookimpl
    def open_range(self, name: str) -> AbstractContextManager[object]:
        """A `record_function`."""
        trace = self._trace
        return trace.open_range(name) if trace is not None else nullcontext()

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for torch, without importing it."""
        found = importlib.util.find_spec("torch")
        return (
            Tool(found.origin, importlib.metadata.version("torch"))
            if found is not None and found.origin
            else None
        )

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to get it."""
        return (
            "torch is not installed. Install the build of it that fits the machine: "
            "https://pytorch.org/get-started"
        )

    @hookimpl
    def plan_notes(self) -> list[str]:
        """What torch will not do, whatever is asked for."""
        note = (
            "profile_memory: torch 2.13 records no allocations while it profiles all threads, "
            "as it must here"
        )
        return [note] if self._options.profile_memory else []

    @hookimpl
    def expected_files(self, worker: Worker, windows: tuple[Window, ...]) -> dict[int, str]:
        """A trace for each window."""
        return {window.number: f"{worker.final_stem(window)}{EXTENSION}" for window in windows}

    @hookimpl
    def read_spans(self, path: str) -> list[RecordedTrack] | None:
        """All in the trace, for ``gpuprof timeline``, and its ranges for ``gpuprof report``."""
        return read_tracks(path) if path.endswith(EXTENSION) else None

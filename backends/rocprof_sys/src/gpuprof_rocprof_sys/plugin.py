"""The hooks."""

from __future__ import annotations

import shutil

from gpuprof import Command, Tool, Worker, hookimpl

from gpuprof_rocprof_sys import _command
from gpuprof_rocprof_sys._options import RocprofSysOptions


class RocprofSysBackend:
    """Workers run under `rocprof-sys-python`, captured from start to end."""

    Options = RocprofSysOptions

    def __init__(self, options: RocprofSysOptions) -> None:
        self._options = options

    @hookimpl
    def render_command(self, command: Command, tool: Tool) -> list[str]:
        """``env … rocprof-sys-python -b … --``; the worker's script follows."""
        return _command.render(command, tool, self._options)

    @hookimpl
    def inject_env(self, worker: Worker) -> dict[str, str | None]:
        """Output directory and prefix, and explicit defaults: they differ between versions of the tool."""
        return _command.environment(worker, self._options)

    @hookimpl
    def probe(self) -> Tool | None:
        """Look for the launcher."""
        path = shutil.which(self._options.executable)
        return Tool(path) if path else None

    @hookimpl
    def missing_tool(self) -> str:
        """Say how to get it."""
        return (
            f"{self._options.executable!r} is not on PATH. It comes with ROCm (package rocprofiler-systems); put /opt/rocm/bin on "
            "PATH, or say where it is with the section's key executable"
        )

    @hookimpl
    def plan_notes(self, worker: Worker) -> list[str]:
        """What this version of the backend does not do."""
        return ["whole-process capture: the steps are not separated"] if worker.windows[0].start is not None else []

"""A trial run of the tool before the job starts.

Its exit code proves nothing: the script must have run, and the tool's files must exist.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

import attrs
from gpuprof.backend import Command, Tool, Worker

from gpuprof_rocprof_sys import _outputs

DEADLINE = 60.0
"""Seconds for an empty script. The tool first looks at all GPUs."""


class _Renders(Protocol):
    def render_command(self, worker: Worker, command: Command, tool: Tool) -> list[str]: ...
    def inject_env(self, worker: Worker, tool: Tool) -> dict[str, str | None]: ...


def refusal(backend: _Renders, worker: Worker, tool: Tool) -> tuple[str, str] | None:
    """Run a small script under the rendered command.

    Returns an empty key and the problem, with the tool's last line of output; ``None`` if it works.
    """
    reason = _try(backend, worker, tool)
    return ("", reason) if reason else None


def _try(backend: _Renders, worker: Worker, tool: Tool) -> str | None:
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as directory:
        worker = attrs.evolve(worker, directory=directory)
        script, mark = Path(directory, "script.py"), Path(directory, "script-has-run")
        script.write_text(f"open({str(mark)!r}, 'w').close()\n")
        command = backend.render_command(worker, Command((sys.executable,), (str(script),)), tool)
        changes = backend.inject_env(worker, tool)
        environment = {
            name: value for name, value in {**os.environ, **changes}.items() if value is not None
        }
        # Replaces a user's own output path.
        environment["ROCPROFSYS_OUTPUT_PATH"] = directory
        environment["ROCPROFSYS_OUTPUT_PREFIX"] = "preflight-"
        try:
            process = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"a script under it: {error}"
        metadata = list(Path(directory).glob("**/preflight-metadata*.json"))
        reason = _outputs.problem(metadata[0]) if metadata else "no output file"
        if not mark.exists():
            # With an interpreter after the dashes, the tool writes its files without running it.
            reason = "has not run"
        if reason is None:
            return None
        lines = [
            line.strip() for line in (process.stdout + process.stderr).splitlines() if line.strip()
        ]
        return f"a script under it ended with {process.returncode}: {reason}" + (
            f"; it said: {lines[-1]}" if lines else ""
        )

"""The session gate: a named nsys session, started and stopped by nsys's own commands."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

from gpuprof.backend import Tool, Window, Worker

from gpuprof_nsight._command.fitting import fitting
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._command.render import start_options
from gpuprof_nsight._names import as_output, raw_window, session_name
from gpuprof_nsight._nsys import find

_DEADLINE = 100.0
"""Seconds for one command of nsys. Stopping writes the report."""
_LAG = 0.05
"""Seconds. In 1 of 90 windows, nsys began to record 1.3 ms after `nsys start` had returned."""


class SessionGate:
    """Records any number of windows.

    Opening one takes 0.1 to 0.5 s, closing it 0.6 to 0.8 s.
    """

    def __init__(self, options: NsightOptions) -> None:
        self._tool = find.find(options.executable) or Tool(options.executable)
        self._options = fitting(options, self._tool)
        self._open = False

    def open(self, worker: Worker, window: Window) -> None:
        """Start the session's collection.

        Raises:
            RuntimeError: there is no such session, or nsys fails.
        """
        name = session_name(worker)
        if name not in self._nsys("sessions", "list").split():
            raise RuntimeError(f"nsys has no session {name}: the worker does not run under nsys")
        self._open = True
        where = as_output(raw_window(worker, window))
        output = self._nsys(
            "start",
            f"--session={name}",
            *start_options(worker, self._options, self._tool),
            "-o",
            where,
        )
        time.sleep(_LAG)
        _log(worker, output)

    def close(self, worker: Worker, window: Window) -> None:
        """Stop the collection; the report is final when this returns.

        Raises:
            RuntimeError: nsys fails.
        """
        if self._open:
            self._open = False
            _log(worker, self._nsys("stop", f"--session={session_name(worker)}"))

    def _nsys(self, *words: str) -> str:
        process = subprocess.run(
            [self._tool.path, *words],
            env=find.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DEADLINE,
        )
        output = process.stdout.decode(errors="replace")
        if process.returncode:
            reason = next(
                (line.strip() for line in output.splitlines() if line.strip()),
                "it printed nothing",
            )
            how = (
                f"was killed by signal {-process.returncode}"
                if process.returncode < 0
                else "failed"
            )
            raise RuntimeError(f"nsys {words[0]} {how}: {reason}")
        return output


def _log(worker: Worker, output: str) -> None:
    if output:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            handle = os.open(worker.log_file, flags, 0o666)
            with open(handle, "a", newline="") as file:
                file.write(output)

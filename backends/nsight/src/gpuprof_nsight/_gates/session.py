"""A named nsys session, started and stopped by nsys's own commands."""

from __future__ import annotations

import subprocess

from gpuprof.backend import Tool, Window, Worker

from gpuprof_nsight._command.fitting import fitting
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_nsight._command.render import start_options
from gpuprof_nsight._names import as_output, raw_window, session_name
from gpuprof_nsight._nsys import find

_DEADLINE = 100.0
"""Seconds for one command of nsys. Stopping writes the report."""


class SessionGate:
    """Any number of windows, each report named when it begins; 0.1 to 0.5 s to open, 0.6 to 0.8 s
    to close.
    """

    def __init__(self, options: NsightOptions) -> None:
        self._tool = find.find(options.executable) or Tool(options.executable)
        self._options = fitting(options, self._tool)
        self._open = False

    def open(self, worker: Worker, window: Window) -> None:
        """Begin to collect.

        Raises:
            RuntimeError: our session is not there, or nsys says no.
        """
        name = session_name(worker)
        if name not in self._nsys("sessions", "list").split():
            raise RuntimeError(f"nsys has no session {name}: the worker does not run under it")
        self._open = True
        where = as_output(raw_window(worker, window))
        self._nsys(
            "start",
            f"--session={name}",
            *start_options(worker, self._options, self._tool),
            "-o",
            where,
        )

    def close(self, worker: Worker, window: Window) -> None:
        """End it; the report is final when this returns.

        Raises:
            RuntimeError: nsys says no.
        """
        if self._open:
            self._open = False
            self._nsys("stop", f"--session={session_name(worker)}")

    def _nsys(self, *words: str) -> str:
        done = subprocess.run(
            [self._tool.path, *words],
            env=find.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DEADLINE,
        )
        if done.returncode:
            said = next(
                (line.strip() for line in done.stdout.splitlines() if line.strip()),
                "it says nothing",
            )
            how = f"is ended by signal {-done.returncode}" if done.returncode < 0 else "fails"
            raise RuntimeError(f"nsys {words[0]} {how}: {said}")
        return done.stdout

"""The user's command at the end of a worker's last window: to copy reports away, say. Whatever it does, the job goes on."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping

from gpuprof._log import log

WAIT = 600.0
"""Seconds that the end of a process waits for the command, at most. It is not ended then: it has a session of its own."""


class FinishCommand:
    """Runs a command once, beside the worker.

    Args:
        command: for ``sh -c``.
        name: of the worker, for messages.
        directory: where the worker's files are. Beside them, in ``<name>.finish.log``, goes what the command prints.
        variables: what the command is told in its environment, as ``GPUPROF_HOOK_<NAME>``.
    """

    def __init__(self, command: str, name: str, directory: str, variables: Mapping[str, str]) -> None:
        self._command = command
        self._name = name
        self._directory = directory
        self._variables = {"DIRECTORY": directory, **variables}
        self._thread: threading.Thread | None = None

    def start(self, files: list[str]) -> None:
        """Start the command, unless it was started before.

        Args:
            files: the worker's reports, absolute; the command has them in ``GPUPROF_HOOK_FILES``, one a line.
        """
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, args=(files,), name="gpuprof-finish", daemon=True)
        self._thread.start()

    def wait(self, timeout: float = WAIT) -> None:
        """Wait for the command, if it was started."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, files: list[str]) -> None:
        # Not the profiler's own preloaded library, nor our identity: the command is no part of the worker.
        environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "GPUPROF_WORKER")}
        told = {**self._variables, "FILES": "\n".join(files)}
        environment.update({f"GPUPROF_HOOK_{name}": value for name, value in told.items()})
        output = os.path.join(self._directory, f"{self._name}.finish.log")
        try:
            os.makedirs(self._directory, exist_ok=True)
            with open(output, "w") as file:
                done = subprocess.run(
                    ["sh", "-c", self._command],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    check=False,
                )
        except Exception as error:
            log().warning("%s: finish_command cannot be run: %s", self._name, error)
            return
        if done.returncode:
            log().warning("%s: finish_command ends with exit code %d; what it said is in %s", self._name, done.returncode, output)

"""The user's command at the end of a worker's last window, for example to copy reports away.

A failing command does not affect the job.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping

from gpuprof._log import log
from gpuprof._shim.safe import create

WAIT = 600.0
"""Seconds that an ending process waits for the command. After that the command continues alone."""
POLL_INTERVAL = 0.1
# Detached from the worker: Ray kills an idle worker together with its children.
_DETACHED = '{ sh -c "$0" >"$1" 2>&1 </dev/null; echo $? >"$1.exit"; } &'


class FinishCommand:
    """Runs a command once, in parallel with the worker.

    Args:
        command: the command line, for ``sh -c``.
        directory: the directory of the worker's files. The command's output goes there, too, to
            ``<name>.finish.log``.
        variables: values for the command's environment; each becomes ``GPUPROF_HOOK_<NAME>``.
    """

    def __init__(
        self, command: str, name: str, directory: str, variables: Mapping[str, str]
    ) -> None:
        self._command = command
        self._name = name
        self._output = os.path.join(directory, f"{name}.finish.log")
        self._variables = {"DIRECTORY": directory, **variables}
        self._started = False
        self._watcher = threading.Thread(target=self._watch, name="gpuprof-finish", daemon=True)

    def start(self, files: list[str]) -> None:
        """Start the command, unless it was started before.

        The command outlives the worker.

        Args:
            files: the absolute paths of the worker's reports; the command gets them in
                ``GPUPROF_HOOK_FILES``, one per line.
        """
        if self._started:
            return
        self._started = True
        # The command is not part of the worker: no preloaded profiler, no identity of ours.
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "GPUPROF_WORKER")
        }
        variables = {**self._variables, "FILES": "\n".join(files)}
        environment.update({f"GPUPROF_HOOK_{name}": value for name, value in variables.items()})
        try:
            os.makedirs(os.path.dirname(self._output), exist_ok=True)
            for path in (self._output, f"{self._output}.exit"):  # the shell follows links
                os.close(create(path))
            command = ["sh", "-c", _DETACHED, self._command, self._output]
            subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                check=True,
            )
        except Exception as error:
            log().warning("%s: finish_command cannot be run: %s", self._name, error)
            return
        self._watcher.start()

    def wait(self, timeout: float = WAIT) -> None:
        """Wait for the command, if it was started."""
        if self._watcher.ident is not None:
            self._watcher.join(timeout)

    def _watch(self) -> None:
        """Wait for the command to end, and warn if it failed."""
        exit_file = f"{self._output}.exit"
        code = ""
        while not code.endswith("\n"):
            time.sleep(POLL_INTERVAL)
            try:
                with open(exit_file) as file:
                    code = file.read()
            except OSError:
                if not os.path.isdir(os.path.dirname(self._output)):
                    return  # the run's directory has been removed
        os.unlink(exit_file)
        if code.strip() != "0":
            log().warning(
                "%s: finish_command failed with exit code %s; its output is in %s",
                self._name,
                code.strip(),
                self._output,
            )

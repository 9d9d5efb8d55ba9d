"""Ending the processes that have run a task and wait for the next: nobody has a handle of them, and Ray keeps them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection

from gpuprof import _records
from gpuprof.ray._nodes import Nodes

Key = tuple[str, int]
Process = tuple[str, int]
"""A node's name and a process id there."""
_IDLE = "ray::IDLE"
"""The title of such a process. One that runs a task is called ``ray::`` and the task's name."""


class IdleWorkers:
    """The processes of a run's tasks.

    Args:
        nodes: of the cluster.
        run_directory: of the run on each node.
        workers: groups and ranks of the tasks.
    """

    def __init__(self, nodes: Nodes, run_directory: str, workers: Collection[Key]) -> None:
        self._nodes = nodes
        self._arguments = (run_directory, workers)
        self._told: set[Process] = set()

    def end(self) -> bool:
        """End those that wait, so that their trees and reports are written. One that runs a task goes on.

        Returns:
            Whether there were any, be it that they have been told before and have not ended yet.
        """
        if not self._arguments[1]:
            return False
        found = [process for some in self._nodes.on_each(_end, *self._arguments, self._told) for process in some]
        self._told.update(found)
        return bool(found)


def _end(run_directory: str, workers: Collection[Key], told: Collection[Process]) -> list[Process]:
    """Run on a node. The signal is sent once: a second one would end the process before it has written what it has."""
    record = _records.read_node(run_directory)
    mine = [start.process for start in record.starts if (start.group, start.rank) in workers and start.process is not None]
    idle = [pid for pid in mine if _title(pid).startswith(_IDLE)]
    for pid in idle:
        if (record.node, pid) not in told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    return [(record.node, pid) for pid in idle]


def _title(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
        return file.read()
    return ""

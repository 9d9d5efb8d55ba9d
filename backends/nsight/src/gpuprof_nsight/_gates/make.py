"""Making a worker's gate.

A worker has one gate; `open` and `close` run on the session's control thread.
"""

from __future__ import annotations

from typing import Protocol

from gpuprof.backend import Window, Worker

from gpuprof_nsight._command.gate import choose
from gpuprof_nsight._command.options import NsightOptions


class Gate(Protocol):
    """Starts and stops nsys's recording."""

    def open(self, worker: Worker, window: Window) -> None:
        """Start to record a window."""

    def close(self, worker: Worker, window: Window) -> None:
        """Stop, if started. Returns when nsys has taken the data."""


def make(worker: Worker, options: NsightOptions) -> Gate:
    """Make the worker's gate."""
    gate = choose(worker, options).gate
    if gate == "nvtx":
        from gpuprof_nsight._gates.nvtx import NvtxGate

        return NvtxGate()
    if gate == "cuda":
        from gpuprof_nsight._gates.cuda import CudaGate

        return CudaGate()
    if gate == "session":
        from gpuprof_nsight._gates.session import SessionGate

        return SessionGate(options)
    return _NoGate()


class _NoGate:
    """Leaves nsys to record on its own."""

    def open(self, worker: Worker, window: Window) -> None:
        """Do nothing."""

    def close(self, worker: Worker, window: Window) -> None:
        """Do nothing."""

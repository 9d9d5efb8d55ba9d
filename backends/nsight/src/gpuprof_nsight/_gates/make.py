"""The four ways to have nsys record a window.

A gate is made once in the worker; its `open` and `close` run on the session's control thread.
"""

from __future__ import annotations

from typing import Protocol

from gpuprof.backend import Window, Worker

from gpuprof_nsight._command.gate import choose
from gpuprof_nsight._command.options import NsightOptions


class Gate(Protocol):
    """Begins and ends what nsys records."""

    def open(self, worker: Worker, window: Window) -> None:
        """Begin to record a window."""

    def close(self, worker: Worker, window: Window) -> None:
        """End it, if it has begun. Returns when nsys has taken the data."""


def make(worker: Worker, options: NsightOptions) -> Gate:
    """The gate, in the worker."""
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
    """Nsys records on its own."""

    def open(self, worker: Worker, window: Window) -> None:
        """Nothing to do."""

    def close(self, worker: Worker, window: Window) -> None:
        """Nothing to do."""

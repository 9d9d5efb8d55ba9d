"""The four ways to have nsys record a window, and which one a worker gets.

A gate is made once in the worker; its `open` and `close` run on the session's control thread.
"""

from __future__ import annotations

from typing import Literal, Protocol

import attrs
from gpuprof import Window, Worker

from gpuprof_nsight._options import NsightOptions

GateName = Literal["cuda", "nvtx", "session", "none"]

DOMAIN = "gpuprof"
"""Of the ranges. The gate has another one: it is not of the user's."""
GATE_DOMAIN = "gpuprof-gate"
GATE_RANGE = "gate"


class Gate(Protocol):
    """Begins and ends what nsys records."""

    def open(self, worker: Worker, window: Window) -> None:
        """Begin to record a window."""

    def close(self, worker: Worker, window: Window) -> None:
        """End it, if it has begun. Returns when nsys has taken the data."""


@attrs.frozen
class Choice:
    """Which gate, and the reason in a few words."""

    gate: GateName
    why: str


def choose(worker: Worker, options: NsightOptions) -> Choice:
    """The gate of a worker.

    ``auto`` takes the session gate where nobody can say how many windows there will be, and the NVTX gate everywhere else: it
    needs no CUDA in the worker, and nsys writes each report while the worker lives. The CUDA gate costs the same and works only
    where the CUDA runtime does, so it is for those who ask for it.
    """
    own = options.value("capture-range")
    yours = f"capture-range={own} is yours: gpuprof does not decide what is recorded"
    if own is not None and not (own == "cudaProfilerApi" and options.gate in ("auto", "cuda")):
        return Choice("none", yours)
    if worker.discrete:
        return Choice("session", "discrete: how many windows there will be is not known")
    if not worker.windows:
        return Choice("session", "armed: which steps will be captured is not known")
    if worker.lifetime:
        return Choice("none", "the worker's whole life is recorded" if own is None else yours)
    if own is not None:
        return Choice("cuda", "capture-range=cudaProfilerApi")
    if options.gate != "auto":
        return Choice(options.gate, f"gate: {options.gate}")
    return Choice("nvtx", "the windows are known, and it needs no CUDA")


def range_end(worker: Worker, options: NsightOptions) -> str:
    """What nsys does at the end of a capture range, as ``capture-range-end`` has it: ``none`` where one report holds everything."""
    own = options.value("capture-range")
    ours = choose(worker, options).gate != "none"
    if not ours and own in (None, "none"):
        return "none"
    end = options.value("capture-range-end")
    return str(end) if end is not None else "repeat" if ours else "stop-shutdown"  # nsys's own default


def make(worker: Worker, options: NsightOptions) -> Gate:
    """The gate, in the worker."""
    gate = choose(worker, options).gate
    if gate == "nvtx":
        from gpuprof_nsight._nvtx_gate import NvtxGate

        return NvtxGate()
    if gate == "cuda":
        from gpuprof_nsight._cuda_gate import CudaGate

        return CudaGate()
    if gate == "session":
        from gpuprof_nsight._session_gate import SessionGate

        return SessionGate(options)
    return _NoGate()


class _NoGate:
    """Nsys records on its own."""

    def open(self, worker: Worker, window: Window) -> None:
        """Nothing to do."""

    def close(self, worker: Worker, window: Window) -> None:
        """Nothing to do."""

"""Choosing a worker's gate: how nsys is made to record a window."""

from __future__ import annotations

from typing import Literal

import attrs
from gpuprof.backend import Worker

from gpuprof_nsight._command.options import NsightOptions

GateName = Literal["cuda", "nvtx", "session", "none"]


@attrs.frozen
class Choice:
    """A gate, and why it was chosen."""

    gate: GateName
    why: str


def choose(worker: Worker, options: NsightOptions) -> Choice:
    """Choose a worker's gate.

    ``auto`` takes the session gate where the number of windows is unknown, and the NVTX gate
    everywhere else: it needs no CUDA in the worker, and nsys writes each report while the worker
    lives. The CUDA gate costs the same but needs the CUDA runtime, so it must be asked for.
    """
    own = options.value("capture-range")
    yours = f"your capture-range={own} decides what is recorded, not gpuprof"
    if own is not None and not (own == "cudaProfilerApi" and options.gate in ("auto", "cuda")):
        return Choice("none", yours)
    if worker.discrete:
        return Choice("session", "discrete: the number of windows is not known in advance")
    if not worker.windows:
        return Choice("session", "armed: the steps to capture are not known in advance")
    if worker.lifetime:
        return Choice("none", "the worker's whole life is recorded" if own is None else yours)
    if own is not None:
        return Choice("cuda", "capture-range=cudaProfilerApi")
    if options.gate != "auto":
        return Choice(options.gate, f"gate: {options.gate}")
    return Choice("nvtx", "the windows are known in advance, and this gate needs no CUDA")


def range_end(worker: Worker, options: NsightOptions) -> str:
    """The value of ``capture-range-end``; ``none`` where one report holds everything."""
    own = options.value("capture-range")
    ours = choose(worker, options).gate != "none"
    if not ours and own in (None, "none"):
        return "none"
    end = options.value("capture-range-end")
    # nsys's own default
    return str(end) if end is not None else "repeat" if ours else "stop-shutdown"

"""Which of the four ways to have nsys record a window a worker gets."""

from __future__ import annotations

from typing import Literal

import attrs
from gpuprof.backend import Worker

from gpuprof_nsight._command.options import NsightOptions

GateName = Literal["cuda", "nvtx", "session", "none"]


@attrs.frozen
class Choice:
    """Which gate, and the reason in a few words."""

    gate: GateName
    why: str


def choose(worker: Worker, options: NsightOptions) -> Choice:
    """The gate of a worker.

    ``auto`` takes the session gate where nobody can say how many windows there will be, and the
    NVTX gate everywhere else: it needs no CUDA in the worker, and nsys writes each report while the
    worker lives. The CUDA gate costs the same and works only where the CUDA runtime does, so it is
    for those who ask for it.
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
    """What nsys does at the end of a capture range, as ``capture-range-end`` has it: ``none`` where
    one report holds everything.
    """
    own = options.value("capture-range")
    ours = choose(worker, options).gate != "none"
    if not ours and own in (None, "none"):
        return "none"
    end = options.value("capture-range-end")
    # nsys's own default
    return str(end) if end is not None else "repeat" if ours else "stop-shutdown"

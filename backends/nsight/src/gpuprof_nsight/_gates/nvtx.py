"""The NVTX gate: nsys captures while a range of gpuprof's own domain is open."""

from __future__ import annotations

from gpuprof.backend import Window, Worker

from gpuprof_nsight._names import GATE_DOMAIN, GATE_RANGE
from gpuprof_nsight._nvtx.library import library as nvtx_library


class NvtxGate:
    """Opens a window with an NVTX range; needs no CUDA.

    Other threads keep running while nsys starts a capture (0.1 s) and writes the report (0.5 to
    1 s).
    """

    def __init__(self) -> None:
        self._open: int | None = None

    def open(self, worker: Worker, window: Window) -> None:
        """Start the range.

        Raises:
            OSError: nsys's library does not support NVTX.
        """
        library = nvtx_library()
        if library is not None:
            self._domain = library.domain(GATE_DOMAIN)
            self._open = library.start_range(self._domain, GATE_RANGE)

    def close(self, worker: Worker, window: Window) -> None:
        """End the range."""
        library = nvtx_library()
        if library is not None and self._open is not None:
            handle, self._open = self._open, None
            library.end_range(self._domain, handle)

"""``cudaProfilerStart`` and ``cudaProfilerStop``, which nsys watches for."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from gpuprof import Window, Worker

_LIBRARIES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")


class CudaGate:
    """Needs the CUDA runtime in the worker: torch's, if torch is there, else the library itself."""

    def __init__(self) -> None:
        self._open = False

    def open(self, worker: Worker, window: Window) -> None:
        """Call ``cudaProfilerStart``.

        Raises:
            OSError: there is no CUDA runtime.
            RuntimeError: it returns an error.
        """
        self._start, self._stop = find_runtime()
        self._open = True
        self._start()

    def close(self, worker: Worker, window: Window) -> None:
        """Call ``cudaProfilerStop``, also where starting has raised.

        Raises:
            RuntimeError: the runtime returns an error.
        """
        if self._open:
            self._open = False
            self._stop()


def find_runtime() -> tuple[Callable[[], object], Callable[[], object]]:
    """What starts and stops the CUDA profiler in this process.

    Raises:
        OSError: there is no CUDA runtime.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.profiler.start, torch.cuda.profiler.stop
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        return _checked(library, "cudaProfilerStart"), _checked(library, "cudaProfilerStop")
    raise OSError(f"gate: cuda needs the CUDA runtime; neither torch with CUDA nor any of {', '.join(_LIBRARIES)} is there")


def _checked(library: ctypes.CDLL, name: str) -> Callable[[], None]:
    function = getattr(library, name)

    def call() -> None:
        code = function()
        if code:
            raise RuntimeError(f"{name} returns error {code}")

    return call

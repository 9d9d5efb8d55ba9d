"""The CUDA gate: nsys watches for ``cudaProfilerStart`` and ``cudaProfilerStop``."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpuprof.backend import Window, Worker

_SONAMES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")
_FILE = re.compile(r"libcudart\b.*\.so\b")  # older wheels of torch have a hash in the name


class CudaGate:
    """Calls the CUDA runtime that the worker has loaded, or else the system's."""

    def __init__(self) -> None:
        self._open = False

    def open(self, worker: Worker, window: Window) -> None:
        """Call ``cudaProfilerStart``.

        Raises:
            OSError: there is no CUDA runtime.
            RuntimeError: the runtime returns an error.
        """
        self._start, self._stop = find_runtime()
        self._open = True
        self._start()

    def close(self, worker: Worker, window: Window) -> None:
        """Call ``cudaProfilerStop``, even if the start raised.

        Raises:
            RuntimeError: the runtime returns an error.
        """
        if self._open:
            self._open = False
            self._stop()


def find_runtime() -> tuple[Callable[[], object], Callable[[], object]]:
    """The functions that start and stop the CUDA profiler in this process.

    Prefers the library through ctypes, which releases the interpreter's lock. torch's own functions
    hold it while nsys works, so they are the last resort, for a torch that contains the runtime.

    Raises:
        OSError: there is no CUDA runtime.
    """
    for name in (*_loaded(), *_SONAMES):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        return _checked(library, "cudaProfilerStart"), _checked(library, "cudaProfilerStop")
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.profiler.start, torch.cuda.profiler.stop
    raise OSError(
        f"gate: cuda needs the CUDA runtime; found neither {' nor '.join(_SONAMES)} nor torch with "
        "CUDA. gate: auto needs none"
    )


def _loaded() -> Iterator[str]:
    """The runtimes that this process has already loaded.

    A second one beside them would have a state of its own.
    """
    with open("/proc/self/maps") as maps:
        paths = {
            fields[5]: None
            for fields in (line.rstrip("\n").split(maxsplit=5) for line in maps)
            if len(fields) == 6
        }
    return (path for path in paths if _FILE.match(os.path.basename(path)))


def _checked(library: ctypes.CDLL, name: str) -> Callable[[], None]:
    function = getattr(library, name)

    def call() -> None:
        code = function()
        if code:
            raise RuntimeError(f"{name} returns error {code}")

    return call

"""The gate: a window's roctx range, and the tracing of Python functions inside it."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

from gpuprof_rocprof_sys._environment import GATE
from gpuprof_rocprof_sys._markers import markers


class Gate:
    """Opens and closes windows, possibly on different threads.

    `torch.cuda.profiler` cannot do this: on ROCm its functions return success and do nothing.

    Args:
        python_frames: whether to record Python functions inside windows.
    """

    def __init__(self, python_frames: bool) -> None:
        self._python_frames = python_frames
        self._profiler: Any = None
        self._range: Any = None
        self._is_open = False

    def open(self) -> None:
        """Start the window's range.

        Before rocprof-sys 1.6, the range only marks the window in a trace of the whole process.
        """
        provider = markers()
        self._is_open = True
        if provider is not None:
            self._range = provider.start(GATE)
        if self._python_frames and self._profiler is None:
            self._start_frames()

    def close(self) -> None:
        """End the window's range, if it is open."""
        if not self._is_open:
            return
        self._is_open = False
        profiler, self._profiler = self._profiler, None
        identifier, self._range = self._range, None
        try:
            if profiler is not None:
                _set_in_all_threads(None)
                profiler.stop()
        finally:
            provider = markers()
            if provider is not None and identifier is not None:
                provider.stop(identifier)

    def _start_frames(self) -> None:
        # The class exists only under the launcher. Elsewhere, importing the package prints a
        # message and defines nothing.
        package = sys.modules.get("rocprofsys")
        if not hasattr(package, "Profiler"):
            return
        self._profiler = package.Profiler()  # type: ignore[union-attr]
        self._profiler.start()
        _set_in_all_threads(importlib.import_module("rocprofsys").profiler_function)


def _set_in_all_threads(function: Any) -> None:
    """Set the profile function in all threads.

    The tool sets it only for the calling thread and for threads that start later. The step runs in
    another thread, which exists already.
    """
    if sys.version_info >= (3, 12):
        threading.setprofile_all_threads(function)

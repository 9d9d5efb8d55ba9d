"""The provider of ranges: the ROCm SDK's roctx, its Python module, or the tool's own regions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
from typing import Any, Protocol


class Markers(Protocol):
    """A provider of ranges.

    Pushed ranges belong to a thread and nest; started ranges may end on any thread.
    """

    def push(self, name: str) -> None:
        """Start a range on this thread."""

    def pop(self, name: str) -> None:
        """End the innermost range of this thread.

        Without an open range, the tool's release 1.2 aborts the process.
        """

    def start(self, name: str) -> Any:
        """Start a range that any thread may end. Returns its identifier."""

    def stop(self, identifier: Any) -> None:
        """End a started range."""


@functools.cache
def markers() -> Markers | None:
    """The first available provider, or ``None``; chosen once per process."""
    for make in (_Library, _Module, _Regions):
        with contextlib.suppress(OSError, ImportError, AttributeError):
            provider: Markers = make()
            return provider
    return None


class _Library:
    """`librocprofiler-sdk-roctx`.

    torch's ranges go to the older library, which releases from 1.0 on may not record.
    """

    NAME = "librocprofiler-sdk-roctx.so"

    def __init__(self) -> None:
        root = os.environ.get("ROCM_PATH", "/opt/rocm")
        library = self._load(
            self.NAME, f"{self.NAME}.1", f"{root}/lib/{self.NAME}", f"{root}/lib/{self.NAME}.1"
        )
        self._push, self._pop = library.roctxRangePushA, library.roctxRangePop
        self._start, self._stop = library.roctxRangeStartA, library.roctxRangeStop
        self._push.argtypes = self._start.argtypes = [ctypes.c_char_p]
        self._start.restype = ctypes.c_uint64
        self._stop.argtypes = [ctypes.c_uint64]
        self._stop.restype = None

    @staticmethod
    def _load(*names: str) -> Any:
        for name in names[:-1]:
            with contextlib.suppress(OSError):
                return ctypes.CDLL(name)
        return ctypes.CDLL(names[-1])

    def push(self, name: str) -> None:
        self._push(name.encode())

    def pop(self, name: str) -> None:
        self._pop()

    def start(self, name: str) -> int:
        return int(self._start(name.encode()))

    def stop(self, identifier: int) -> None:
        self._stop(identifier)


class _Module:
    """The package `roctx` of the SDK."""

    def __init__(self) -> None:
        roctx = importlib.import_module("roctx")
        self.push = roctx.rangePush
        self._pop = roctx.rangePop
        self.start = roctx.rangeStart
        self.stop = roctx.rangeStop

    def pop(self, name: str) -> None:
        self._pop()


class _Regions:
    """`rocprofsys.user`, which release 1.9 removed.

    It has no ranges that cross threads, so those are dropped.
    """

    def __init__(self) -> None:
        # Without its bindings the package can be imported but only prints.
        user = importlib.import_module("rocprofsys.user")
        self.push = user.push_region
        self.pop = user.pop_region

    def start(self, name: str) -> None:
        return None

    def stop(self, identifier: None) -> None:
        return None

"""Who takes our ranges: roctx of the ROCm SDK, its Python module, the tool's own regions, or
nobody. Chosen once.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
from typing import Any, Protocol


class Markers(Protocol):
    """A provider of ranges.

    Pushed ones belong to a thread and nest; started ones may end anywhere.
    """

    def push(self, name: str) -> None:
        """Begin a range on this thread."""

    def pop(self, name: str) -> None:
        """End the innermost range of this thread.

        Without one the tool of release 1.2 aborts the process.
        """

    def start(self, name: str) -> Any:
        """Begin a range that any thread may end. Returns what ends it."""

    def stop(self, identifier: Any) -> None:
        """End it."""


@functools.cache
def markers() -> Markers | None:
    """The first provider that is there."""
    for make in (_Library, _Module, _Regions):
        with contextlib.suppress(OSError, ImportError, AttributeError):
            made: Markers = make()
            return made
    return None


class _Library:
    """`librocprofiler-sdk-roctx`.

    The ranges of torch go to the older library, which releases from 1.0 on may not record.
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
    """`rocprofsys.user`, until 1.9 took it away.

    It has no ranges that cross threads: those are left out.
    """

    def __init__(self) -> None:
        # Without its bindings the package only prints, so it is not enough that it can be imported.
        user = importlib.import_module("rocprofsys.user")
        self.push = user.push_region
        self.pop = user.pop_region

    def start(self, name: str) -> None:
        return None

    def stop(self, identifier: None) -> None:
        return None

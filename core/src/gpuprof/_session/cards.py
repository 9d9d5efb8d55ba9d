"""Reads what this process's NVIDIA GPUs do, about once a second, by NVML.

That needs nvidia-ml-py, which is optional. Without it, or without a GPU that the process uses,
nothing is recorded: a figure always comes from a card.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

CARD = struct.Struct("<qqqqqq")
"""A GPU at one moment: its number in this process's events `FOUND`, time, per cent of the last time
in which a kernel ran, bytes of its memory in use by all processes, clock of its processors in MHz,
and NVML's reasons why the clock is not higher, as bits."""
FOUND = "card"
"""The event of a GPU that is read from now on, with its ``card`` (number), ``name``, ``memory``
(bytes) and ``clock`` (the highest, in MHz)."""
_MOST = 8


class Cards:
    """The GPUs that this process uses.

    Args:
        clock: the ledger's clock, in nanoseconds.
        note: called with an event and its details when a GPU is found.
    """

    def __init__(self, clock: Callable[[], int], note: Callable[..., object]) -> None:
        self._clock = clock
        self._note = note
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._is_over = False

    def read(self) -> Iterator[bytes]:
        """A row of `CARD` for each GPU.

        It begins once torch has initialised CUDA: gpuprof initialises nothing itself, and a process
        without CUDA asks no GPU. What cannot be read ends it, without a word: the job goes on.
        """
        if self._is_over or not (self._handles or _uses_cuda()):
            return
        try:
            if not self._handles:
                self._open()
            for number, handle in enumerate(self._handles):
                nvml = self._nvml
                yield CARD.pack(
                    number,
                    self._clock(),
                    nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                    nvml.nvmlDeviceGetMemoryInfo(handle).used,
                    nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                    nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
                )
        except Exception:  # not installed, no driver, or a card that lacks a count, such as MIG's
            self._is_over = True

    def _open(self) -> None:
        import pynvml as nvml

        self._nvml = nvml
        nvml.nvmlInit()
        self._handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in _own()]
        self._is_over = not self._handles
        for number, handle in enumerate(self._handles):
            self._note(
                FOUND,
                card=number,
                name=str(nvml.nvmlDeviceGetName(handle)),
                memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                clock=int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            )


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # another thread may be in the middle of importing it
    return cuda is not None and hasattr(cuda, "is_initialized") and bool(cuda.is_initialized())


def _own() -> list[str]:
    """The UUIDs of the GPUs that this process sees; of several, that of its local rank."""
    cuda = sys.modules["torch"].cuda
    numbers = list(range(cuda.device_count()))
    local_rank = os.environ.get("LOCAL_RANK", "")
    if len(numbers) > 1 and local_rank.isdecimal() and int(local_rank) in numbers:
        numbers = [int(local_rank)]
    return [f"GPU-{cuda.get_device_properties(number).uuid}" for number in numbers[:_MOST]]

"""Stands in for NVML and for a torch with CUDA, as there is no card: what a process would ask them.

Its figures are not those of any card.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

NVML_CLOCK_SM = 1
UUIDS = ("0", "1")
TOTAL = 80 * 10**9


class StandInTorch:
    """Torch that has initialised CUDA, or not yet, and sees two GPUs."""

    def __init__(self, is_initialized: bool = True) -> None:
        self.cuda = SimpleNamespace(
            is_initialized=lambda: is_initialized,
            device_count=lambda: len(UUIDS),
            get_device_properties=lambda number: SimpleNamespace(uuid=UUIDS[number]),
        )


def nvmlInit() -> None:
    """Begin."""


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    """A GPU, here its number."""
    return int(uuid.removeprefix("GPU-"))


def nvmlDeviceGetName(handle: int) -> str:
    """A name that no card has."""
    return f"stand-in {handle}"


def nvmlDeviceGetMemoryInfo(handle: int) -> Any:
    """Bytes in use, and in all."""
    return SimpleNamespace(used=(handle + 1) * 10**9, total=TOTAL)


def nvmlDeviceGetUtilizationRates(handle: int) -> Any:
    """Per cent."""
    return SimpleNamespace(gpu=50 + handle)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    """MHz."""
    return 1_500


def nvmlDeviceGetMaxClockInfo(handle: int, kind: int) -> int:
    """MHz."""
    return 2_000


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    """Slowed by software for heat."""
    return 0x20

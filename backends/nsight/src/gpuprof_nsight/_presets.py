"""Options to begin with, by what they cost. The page nsight-presets of the docs explains each."""

from __future__ import annotations

from typing import Literal, Union

Value = Union[str, bool, int, float, None]
Preset = Literal["light", "standard", "deep"]

PRESETS: dict[str, dict[str, Value]] = {
    "light": {"t": "nvtx", "sample": "none", "cpuctxsw": "none"},
    "standard": {"t": "cuda,nvtx", "sample": "none", "cpuctxsw": "none", "cuda-graph-trace": "graph"},
    # RLinf's `profile/default`, option by option.
    "deep": {
        "t": "cuda,cudnn,cublas,nvtx,osrt",
        "sample": "process-tree",
        "cpuctxsw": "process-tree",
        "cudabacktrace": "all",
        "osrt-threshold": 1000,
    },
}

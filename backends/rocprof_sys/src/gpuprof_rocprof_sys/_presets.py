"""The presets: variables to start from, by cost. The docs' page rocprof_sys explains them."""

from __future__ import annotations

from typing import Literal

Preset = Literal["light", "standard", "deep"]

# Only domains known to every release: the tool exits at an unknown one.
PRESETS: dict[str, dict[str, str]] = {
    "light": {
        "ROCPROFSYS_ROCM_DOMAINS": "marker_api,kernel_dispatch",
        "ROCPROFSYS_USE_PROCESS_SAMPLING": "false",
        "ROCPROFSYS_USE_SAMPLING": "false",
    },
    "standard": {
        "ROCPROFSYS_ROCM_DOMAINS": "hip_runtime_api,marker_api,kernel_dispatch,memory_copy",
        "ROCPROFSYS_USE_PROCESS_SAMPLING": "false",
        "ROCPROFSYS_USE_SAMPLING": "false",
    },
    "deep": {
        "ROCPROFSYS_ROCM_DOMAINS": (
            "hip_runtime_api,marker_api,kernel_dispatch,memory_copy,scratch_memory"
        ),
        "ROCPROFSYS_USE_PROCESS_SAMPLING": "true",
        "ROCPROFSYS_USE_SAMPLING": "true",
        "ROCPROFSYS_SAMPLING_FREQ": "100",
    },
}

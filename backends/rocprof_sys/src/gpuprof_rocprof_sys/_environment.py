"""What the tool is told by environment variables: most of its settings have no other way in."""

from __future__ import annotations

import re

from gpuprof.backend import Tool, Worker
from gpuprof.errors import ConfigError

from gpuprof_rocprof_sys import _tool
from gpuprof_rocprof_sys._command import INHERITED
from gpuprof_rocprof_sys._options import RocprofSysOptions

GATE = "gpuprof"
"""The roctx range inside which a release that can select regions records."""
SELECTED_REGIONS = "ROCPROFSYS_SELECTED_REGIONS"


def environment(worker: Worker, tool: Tool, options: RocprofSysOptions) -> dict[str, str | None]:
    """Where the files go and what is in them, said outright because defaults differ between
    releases; the user's `env` wins.

    Raises:
        ConfigError: the tool would take a part of the output path for one of its keys.
    """
    stem = f"{worker.file_stem}-"  # the tool puts no separator after it
    for key, value in (("output_dir", worker.directory), ("group", stem)):
        # Of the two syntaxes for keys neither can be escaped.
        if "%" in value or re.search(r"\$(env|cfg)\{", value):
            raise ConfigError(
                [
                    (
                        f"{key}: {value!r} is not valid with rocprof_sys; expected no %, which the "
                        "tool expands in paths"
                    )
                ]
            )
    return {
        "ROCPROFSYS_OUTPUT_PATH": worker.directory,
        "ROCPROFSYS_OUTPUT_PREFIX": stem,
        "ROCPROFSYS_TIME_OUTPUT": "false",
        "ROCPROFSYS_USE_PID": "true",
        "ROCPROFSYS_TRACE": "true",
        "ROCPROFSYS_PROFILE": "false",
        "ROCPROFSYS_USE_ROCPD": "false",
        **({"ROCPROFSYS_USE_ROCTX": "true"} if _tool.needs_roctx_switch(tool) else {}),
        **({SELECTED_REGIONS: GATE} if gated(worker, tool) else {}),
        **dict.fromkeys(INHERITED),
        **options.env,
    }


def gated(worker: Worker, tool: Tool) -> bool:
    """Whether the release records inside windows only."""
    return not worker.lifetime and _tool.selects_regions(tool)

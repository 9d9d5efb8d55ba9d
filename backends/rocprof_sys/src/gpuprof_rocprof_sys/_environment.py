"""The tool's environment variables, the only way to set most of its settings."""

from __future__ import annotations

import re

from gpuprof.backend import Tool, Worker
from gpuprof.errors import ConfigError

from gpuprof_rocprof_sys import _tool
from gpuprof_rocprof_sys._command import INHERITED
from gpuprof_rocprof_sys._options import RocprofSysOptions

GATE = "gpuprof"
"""The roctx range of a window: releases that can select regions record only inside it."""
SELECTED_REGIONS = "ROCPROFSYS_SELECTED_REGIONS"


def environment(worker: Worker, tool: Tool, options: RocprofSysOptions) -> dict[str, str | None]:
    """The variables for the files' paths and content; the user's `env` wins.

    Sets every default explicitly, as they differ between releases.

    Raises:
        ConfigError: the tool would expand a part of the output path.
    """
    stem = f"{worker.file_stem}-"  # the tool puts no separator after it
    for key, value in (("output_dir", worker.directory), ("group", stem)):
        # Neither syntax of the tool's own variables can be escaped.
        if "%" in value or re.search(r"\$(env|cfg)\{", value):
            message = (
                f"{key}: {value!r} is not valid with rocprof_sys; expected no % and no $env{{ or "
                "$cfg{, which the tool expands in paths"
            )
            raise ConfigError([message])
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
    """Whether this release records only inside windows."""
    return not worker.lifetime and _tool.selects_regions(tool)

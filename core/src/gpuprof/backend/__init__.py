"""For authors of backends: the hooks' marker and types, and helpers for files and leftovers.

The hooks themselves are in `gpuprof.backend.hookspecs`.
"""

from gpuprof._shim.scratch import end_tool, share_temporary
from gpuprof._shim.tool import run_tool
from gpuprof.backend.base import Backend
from gpuprof.backend.contract import CONTRACT
from gpuprof.backend.hookspecs import hookimpl
from gpuprof.backend.naming import move, template_problem
from gpuprof.backend.types import (
    Check,
    Collected,
    Command,
    Key,
    Purpose,
    RangeTimes,
    RecordedTrack,
    Tool,
    Window,
    Worker,
    option,
)

__all__ = [
    "CONTRACT", "Backend", "Check", "Collected", "Command", "Key", "Purpose", "RangeTimes",
    "RecordedTrack", "Tool", "Window", "Worker", "end_tool", "hookimpl", "move", "option",
    "run_tool", "share_temporary", "template_problem",
]  # fmt: skip

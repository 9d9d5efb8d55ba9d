"""Wrap the right workers of a distributed job in the right profiler, capture the right steps, and always leave a timing tree."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pluggy
from gpuprof_timing import Timing, annotate

from gpuprof._worker import step, timer, timing

if TYPE_CHECKING:
    from gpuprof._naming import move, template_problem
    from gpuprof._scratch import end_tool, share_temporary
    from gpuprof._types import Check, Command, Key, RangeTimes, Tool, Window, Worker, option
    from gpuprof._whole_plan import Plan, plan

__all__ = [
    "Check", "Command", "Key", "Plan", "RangeTimes", "Timing", "Tool", "Window", "Worker", "annotate", "end_tool", "hookimpl",
    "move", "option", "plan", "share_temporary", "step", "template_problem", "timer", "timing",
]  # fmt: skip

_ELSEWHERE = {
    "_types": ("Check", "Command", "Key", "RangeTimes", "Tool", "Window", "Worker", "option"),
    "_naming": ("move", "template_problem"),
    "_scratch": ("end_tool", "share_temporary"),
    "_whole_plan": ("Plan", "plan"),
}
"""What only backends and launchers need, by the module that has it: imported when it is asked for."""

hookimpl = pluggy.HookimplMarker("gpuprof")


def __getattr__(name: str) -> Any:
    """What only backends and launchers need, and the version."""
    for module, names in _ELSEWHERE.items():
        if name in names:
            return getattr(importlib.import_module(f"gpuprof.{module}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("gpuprof")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

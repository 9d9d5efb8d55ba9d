"""Wrap the right workers of a distributed job in the right profiler, capture the right steps, and always leave a timing tree."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pluggy
from gpuprof_timing import Timing, annotate

from gpuprof._worker import step, timer, timing

if TYPE_CHECKING:
    from gpuprof._naming import move, template_problem
    from gpuprof._types import Command, Tool, Window, Worker, option

__all__ = [
    "Command", "Timing", "Tool", "Window", "Worker", "annotate", "hookimpl", "move", "option", "step", "template_problem", "timer",
    "timing",
]  # fmt: skip

hookimpl = pluggy.HookimplMarker("gpuprof")


def __getattr__(name: str) -> Any:
    """Types that only backends need, and the version: imported when they are asked for."""
    if name in ("Command", "Tool", "Window", "Worker", "option"):
        return getattr(importlib.import_module("gpuprof._types"), name)
    if name in ("move", "template_problem"):
        return getattr(importlib.import_module("gpuprof._naming"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("gpuprof")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

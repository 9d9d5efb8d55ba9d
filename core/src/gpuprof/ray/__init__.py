"""Profiles the workers of a Ray job. This is the only package of gpuprof that imports Ray."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuprof.ray._cluster import examine_nodes, running_workers
    from gpuprof.ray._job import hook_workers, link_from_ray_logs, start_as_ray_does
    from gpuprof.ray._nodes import connected_nodes
    from gpuprof.ray._profiler import Profiler
    from gpuprof.ray._runtime_env import without_profilers, wrapped

__all__ = [
    "Profiler",
    "connected_nodes",
    "examine_nodes",
    "hook_workers",
    "link_from_ray_logs",
    "running_workers",
    "start_as_ray_does",
    "without_profilers",
    "wrapped",
]

_MODULES = {
    "Profiler": "_profiler",
    "connected_nodes": "_nodes",
    "examine_nodes": "_cluster",
    "hook_workers": "_job",
    "link_from_ray_logs": "_job",
    "running_workers": "_cluster",
    "start_as_ray_does": "_job",
    "without_profilers": "_runtime_env",
    "wrapped": "_runtime_env",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: all workers import this package, and only drivers need these."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

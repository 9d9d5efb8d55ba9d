"""Profiling the workers of a Ray job. The only place of gpuprof that imports Ray."""

from gpuprof.ray._cluster import examine_nodes, running_workers
from gpuprof.ray._job import hook_workers, link_from_ray_logs
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
    "without_profilers",
    "wrapped",
]

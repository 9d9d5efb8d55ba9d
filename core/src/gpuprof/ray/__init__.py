"""Profiling the workers of a Ray job. The only place of gpuprof that imports Ray."""

from gpuprof.ray._examination import examine_nodes
from gpuprof.ray._inner import wrapped
from gpuprof.ray._nodes import connected_nodes
from gpuprof.ray._profiler import Profiler
from gpuprof.ray._running import running_workers

__all__ = ["Profiler", "connected_nodes", "examine_nodes", "running_workers", "wrapped"]

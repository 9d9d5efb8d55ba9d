"""Profiling the workers of a Ray job. The only place of gpuprof that imports Ray."""

from gpuprof.ray._profiler import Profiler
from gpuprof.ray._running import running_workers

__all__ = ["Profiler", "running_workers"]

"""gpuprof on Ray. The one place that imports it."""

from gpuprof.ray._profiler import Profiler

__all__ = ["Profiler"]

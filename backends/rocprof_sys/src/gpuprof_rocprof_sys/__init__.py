"""gpuprof backend for AMD ROCm Systems Profiler."""

from gpuprof_rocprof_sys.plugin import RocprofSysBackend

__all__ = ["RocprofSysBackend"]

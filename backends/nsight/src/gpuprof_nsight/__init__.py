"""gpuprof backend for NVIDIA Nsight Systems."""

from gpuprof_nsight.plugin import NsightBackend

__all__ = ["NsightBackend"]

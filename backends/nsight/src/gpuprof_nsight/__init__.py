"""gpuprof backend for NVIDIA Nsight Systems."""

from gpuprof_nsight._reports.export import ReportError
from gpuprof_nsight._reports.read import Range, Report, read
from gpuprof_nsight.plugin import NsightBackend

__all__ = ["NsightBackend", "Range", "Report", "ReportError", "read"]

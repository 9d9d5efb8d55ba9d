"""gpuprof backend for torch.profiler."""

from gpuprof_torch_profiler.plugin import TorchProfilerBackend

__all__ = ["TorchProfilerBackend"]

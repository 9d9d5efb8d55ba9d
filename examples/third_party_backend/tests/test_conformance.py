"""gpuprof's conformance kit on this backend."""

from __future__ import annotations

from pathlib import Path

from gpuprof.testing import BackendConformance
from gpuprof_torch_profiler import TorchProfilerBackend


class TestTorchProfiler(BackendConformance):
    """What any backend must do."""

    name = "torch_profiler"
    backend = TorchProfilerBackend
    options = {"activities": ["cpu"], "record_shapes": True}
    project = Path(__file__).parents[1]

"""gpuprof's conformance kit on this backend."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from gpuprof.testing import BackendConformance
from gpuprof_torch_profiler import TorchProfilerBackend


class TestTorchProfiler(BackendConformance):
    """What any backend must do."""

    name = "torch_profiler"
    backend = TorchProfilerBackend
    options = {"activities": ["cpu"], "record_shapes": True}
    project = Path(__file__).parents[1]

    def read_labels(self, file: Path) -> Counter[str]:
        events = json.loads(file.read_text())["traceEvents"]
        return Counter(event["name"] for event in events if event.get("cat") == "user_annotation")

"""gpuprof's conformance kit on this backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof.testing import BackendConformance
from gpuprof_torch_profiler import TorchProfilerBackend

pytest.importorskip("torch")


class TestTorchProfiler(BackendConformance):
    """What any backend must do."""

    name = "torch_profiler"
    backend = TorchProfilerBackend
    options = {"activities": ["cpu"], "record_shapes": True}
    project = Path(__file__).parents[1]


# each has a trace of its own
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events at the end of each cycle")
class TestTorchProfilerWithASchedule(TestTorchProfiler):
    """The same where the end of the kit's ranges is a step of a schedule."""

    options = {"activities": ["cpu"], "schedule": {"every": "kit", "repeat": 0}}
    skip = dict.fromkeys(
        ("awkward_paths_survive", "the_files_hold_what_was_captured"),
        "the kit's worker has no range of that name",
    )

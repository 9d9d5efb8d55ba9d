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
    skip = {
        "the_output_is_the_jobs": "torch prints on stderr when its profiler starts and stops",
        "a_window_leaves_its_surroundings_alone": "torch ends the process; why is not known",
    }


# each has a trace of its own
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events at the end of each cycle")
class TestTorchProfilerWithASchedule(TestTorchProfiler):
    """The same where the end of the kit's ranges is a step of a schedule."""

    options = {"activities": ["cpu"], "schedule": {"every": "kit", "repeat": 0}}
    skip = {
        **TestTorchProfiler.skip,
        **dict.fromkeys(
            (
                "awkward_paths_survive", "the_files_hold_what_was_captured",
                "a_whole_life_is_captured", "ranges_are_read_as_they_were",
                "restarts_and_ranks_keep_their_files", "scopes_are_captured",
                "the_process_is_as_the_launcher_made_it",
            ),
            "the kit's worker has no range of that name, so no cycle of the schedule ends",
        ),
    }  # fmt: skip

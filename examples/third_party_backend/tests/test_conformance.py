"""gpuprof's conformance kit on this backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof_testing import BackendConformance
from gpuprof_torch_profiler import TorchProfilerBackend

pytestmark = pytest.mark.torch


class TestTorchProfiler(BackendConformance):
    """What any backend must do."""

    name = "torch_profiler"
    backend = TorchProfilerBackend
    options = {"activities": ["cpu"], "record_shapes": True}
    project = Path(__file__).parents[1]
    # of the rest, importing torch takes most of the time
    each_run = (
        "test_the_defaults_work",
        "test_the_exit_code_passes",
        "test_a_worker_that_is_killed",
        "test_an_installed_wheel_is_found",
        "test_reports_are_checked",
    )

    @pytest.fixture(autouse=True)
    def _without_words_of_kineto(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """torch's Kineto prints two lines on stderr for each window, at the level of its errors."""
        monkeypatch.setenv("KINETO_LOG_LEVEL", "6")


# the windows of a schedule have a test of their own
# each has a trace of its own
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events at the end of each cycle")
class TestTorchProfilerWithASchedule(TestTorchProfiler):
    """The same where the end of the kit's ranges is a step of a schedule."""

    options = {"activities": ["cpu"], "schedule": {"every": "kit"}}
    each_run = ()
    skip = {
        "a_whole_life_is_captured": "a script without ranges does not advance the schedule",
        "scopes_are_captured": "the range that is counted is in none of the kit's scopes",
    }

    def read_labels(self, file: Path) -> None:
        """Not known: a schedule records a part of each window."""

"""gpuprof's conformance kit on nsight, with a real nsys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from gpuprof_nsight import NsightBackend
from gpuprof_testing import BackendConformance
from support.report_reader import NoRanges


@pytest.mark.nsys
class TestNsight(BackendConformance):
    """What any backend must do."""

    name = "nsight"
    backend = NsightBackend
    options = {"options": {"t": "nvtx"}, "env": {"MODE": "trace"}}
    refused_in_paths = '"'
    project = Path(__file__).parents[2] / "backends" / "nsight"
    skip = {
        "the_worker_stays_in_its_group": "nsys gives the program a session of its own",
        "programs_inherit_nothing_of_the_tool": "nsys's library opens its files without O_CLOEXEC",
        "a_window_that_left_nothing_is_passed_over": "nsys numbers its reports, not the windows",
    }

    def read_labels(self, file: Path) -> Mapping[str, int] | None:
        """As the hook says; a report without any range is nsys's fault, and has its name."""
        labels = super().read_labels(file)
        if labels is not None and not labels:
            raise NoRanges(file)
        return labels


@pytest.mark.nsys
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"gate": "nvtx"}, id="nvtx"),
        pytest.param({"gate": "session"}, id="session"),
        pytest.param({"gate": "cuda"}, id="cuda", marks=pytest.mark.exhaustive),
        pytest.param(
            {"options": {"capture-range": "none"}}, id="none", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_no_gate_changes_the_process(options: dict[str, object], tmp_path: Path) -> None:
    """The check of the kit, with each gate."""
    case = type("TestGate", (TestNsight,), {"options": {"preset": "light", **options}})()
    case.test_the_process_is_as_the_launcher_made_it(tmp_path)

"""The conformance kit on rocprof_sys, with a stand-in for AMD's tool."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuprof_rocprof_sys import RocprofSysBackend
from gpuprof_testing import BackendConformance


class TestRocprofSysUnderAStandIn(BackendConformance):
    """What any backend must do."""

    name = "rocprof_sys"
    backend = RocprofSysBackend
    options = {"args": {"label": ["file"]}, "env": {"ROCPROFSYS_ROCM_DOMAINS": "hip_runtime_api"}}
    project = Path(__file__).parents[2] / "backends" / "rocprof_sys"
    refused_in_paths = "%"
    each_run = (
        "test_the_defaults_work",
        "test_scopes_are_captured",
        "test_a_whole_life_is_captured",
        "test_the_files_hold_what_was_captured",
        "test_a_window_leaves_its_surroundings_alone",
        "test_the_exit_code_passes",
        "test_signals_reach_the_worker",
        "test_a_worker_that_is_killed",
        "test_awkward_paths_survive",
        "test_arguments_need_not_be_utf_8",
        "test_leftovers_are_collected",
        "test_files_of_other_workers_are_left_alone",
        "test_the_process_is_as_the_launcher_made_it",
        "test_an_installed_wheel_is_found",
        "test_reports_are_checked",
    )

    @pytest.fixture(autouse=True)
    def _on_path(self, release: Callable[[str], None]) -> None:
        release("1.6")

    def read_labels(self, file: Path) -> Counter[str]:
        calls = json.loads(file.read_text())["calls"]
        return Counter(call[1] for call in calls if call[0] in ("rangePush", "rangeStart"))

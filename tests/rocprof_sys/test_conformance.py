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

    @pytest.fixture(autouse=True)
    def _on_path(self, release: Callable[[str], None]) -> None:
        release("1.6")

    def read_labels(self, file: Path) -> Counter[str]:
        calls = json.loads(file.read_text())["calls"]
        return Counter(call[1] for call in calls if call[0] in ("rangePush", "rangeStart"))

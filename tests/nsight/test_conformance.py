"""gpuprof's conformance kit on nsight, with a real nsys."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof.testing import BackendConformance
from gpuprof_nsight import NsightBackend


@pytest.mark.nsys
class TestNsight(BackendConformance):
    """What any backend must do."""

    name = "nsight"
    backend = NsightBackend
    options = {"options": {"t": "nvtx"}, "env": {"MODE": "trace"}}
    refused_in_paths = '"'
    project = Path(__file__).parents[2] / "backends" / "nsight"

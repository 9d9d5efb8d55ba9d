"""gpuprof's conformance kit on this backend."""

from __future__ import annotations

from pathlib import Path

from gpuprof_py_spy import PySpyBackend
from gpuprof_testing import BackendConformance


class TestPySpy(BackendConformance):
    """What any backend must do."""

    name = "py_spy"
    backend = PySpyBackend
    options = {"rate": 200}
    project = Path(__file__).parents[1]

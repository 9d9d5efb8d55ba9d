"""The CUDA gate. Here a stand-in for the runtime shows the order of calls and nothing more; tests marked `gpu` show the rest."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from gpuprof import Window, Worker
from gpuprof_nsight import _cuda_gate
from gpuprof_nsight._cuda_gate import CudaGate

HERE = Worker("run", "ActorGroup", 0, "node", "1", "/out", (Window(1, 3, 4),)), Window(1, 3, 4)
STAND_IN = """
#include <stdio.h>
static int fails = 0;
int cudaProfilerStart(void) { FILE *f = fopen(CALLS, "a"); fputs("start\\n", f); fclose(f); return fails; }
int cudaProfilerStop(void) { FILE *f = fopen(CALLS, "a"); fputs("stop\\n", f); fclose(f); return 0; }
"""


@pytest.fixture
def stand_in_for_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library with the two functions, compiled here, that writes down its calls; no torch beside it."""
    calls = tmp_path / "calls"
    calls.touch()
    (tmp_path / "standin.c").write_text(STAND_IN)
    library = tmp_path / "libcudart.so"
    command = ["cc", "-shared", "-fPIC", f'-DCALLS="{calls}"', "-o", str(library), str(tmp_path / "standin.c")]
    subprocess.run(command, check=True)
    monkeypatch.setattr(_cuda_gate, "_LIBRARIES", (str(library),))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return calls


def test_the_stand_in_is_started_and_stopped_once_a_window(stand_in_for_the_runtime: Path) -> None:
    """A stop without a start, and a second stop, call nothing."""
    gate = CudaGate()
    gate.close(*HERE)
    for _ in range(2):
        gate.open(*HERE)
        gate.close(*HERE)
        gate.close(*HERE)
    assert ["start", "stop", "start", "stop"] == stand_in_for_the_runtime.read_text().splitlines()


def test_torchs_stand_in_is_preferred(stand_in_for_the_runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is imported and has CUDA, its runtime is the one that the worker uses."""
    called: list[str] = []
    profiler: Any = types.SimpleNamespace(start=lambda: called.append("start"), stop=lambda: called.append("stop"))
    cuda = types.SimpleNamespace(is_available=lambda: True, profiler=profiler)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    gate = CudaGate()
    gate.open(*HERE)
    gate.close(*HERE)
    assert (["start", "stop"], "") == (called, stand_in_for_the_runtime.read_text())


def test_without_a_runtime_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session then switches profiling off, and the job goes on."""
    monkeypatch.setattr(_cuda_gate, "_LIBRARIES", ("libno-such-runtime.so",))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(OSError, match="gate: cuda needs the CUDA runtime"):
        CudaGate().open(*HERE)


@pytest.mark.gpu
@pytest.mark.nsys
def test_a_gpu_is_captured_inside_the_gate(tmp_path: Path) -> None:
    """Kernels of the window are in the report, and none from before."""
    from gpuprof_nsight import read

    program = """
import torch
from gpuprof import Window, Worker
from gpuprof_nsight._cuda_gate import CudaGate
here = Worker("run", "A", 0, "node", "1", "/out"), Window(1, 3, 4)
gate, matrix = CudaGate(), torch.ones(64, 64, device="cuda")
matrix @ matrix
torch.cuda.synchronize()
gate.open(*here)
for _ in range(3):
    matrix.add_(1)
torch.cuda.synchronize()
gate.close(*here)
"""
    command = [
        "nsys",
        "profile",
        "-t",
        "cuda,nvtx",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=repeat:1",
        "--kill=none",
    ]
    subprocess.run([*command, "-o", str(tmp_path / "report"), sys.executable, "-c", program], check=True, timeout=300)
    assert 3 == len(list(read(tmp_path / "report.nsys-rep").kernels()))

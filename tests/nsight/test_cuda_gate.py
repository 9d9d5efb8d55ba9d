"""The CUDA gate.

Here a stand-in for the runtime shows the order of calls and nothing more; tests marked `gpu` show
the rest.

Each program is a process of its own: what a process has loaded stays.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import DEADLINE

STAND_IN = """
#include <stdio.h>
static void note(const char *words) { FILE *f = fopen(CALLS, "a"); fputs(words, f); fclose(f); }
int cudaProfilerStart(void) { note("start\\n"); return ANSWER; }
int cudaProfilerStop(void) { note("stop\\n"); return 0; }
"""
WAITS = """
#include <stdio.h>
int cudaProfilerStart(void) {
    FILE *f = fopen(CALLS, "r"); int word = fgetc(f); fclose(f); return word != 'x';
}
int cudaProfilerStop(void) { return 0; }
"""
GATE = """
import ctypes, sys, threading, types
from gpuprof.backend import Window, Worker
from gpuprof_nsight._gates import cuda as _cuda_gate
here = Worker("run", "ActorGroup", 0, "node", "1", "/out", (Window(1, 3, 4),)), Window(1, 3, 4)
gate = _cuda_gate.CudaGate()
said = []
profiler = types.SimpleNamespace(start=lambda: said.append("start"),
                                 stop=lambda: said.append("stop"))
torch = types.SimpleNamespace(cuda=types.SimpleNamespace(
    is_available=lambda: True, profiler=profiler))
"""
OPEN_AND_CLOSE = "gate.open(*here); gate.close(*here); print(said)"
NO_LIBRARY = "_cuda_gate._SONAMES = ('libno-such-runtime.so',)"


def stand_in(path: Path, source: str = STAND_IN, answer: int = 0) -> Path:
    """Compile a library with the two functions. Returns the file of its calls."""
    path.parent.mkdir()
    calls = path.parent / "calls"
    code = path.with_suffix(".c")
    code.write_text(source)
    command = [
        "cc",
        "-shared",
        "-fPIC",
        f'-DCALLS="{calls}"',
        f"-DANSWER={answer}",
        "-o",
        str(path),
        str(code),
    ]
    subprocess.run(command, check=True)
    return calls


def run(*lines: str, found_in: Path | None = None) -> str:
    """Run lines in a process of its own, with libraries of a directory found by name.

    Returns what they print.
    """
    environment = (
        os.environ if found_in is None else {**os.environ, "LD_LIBRARY_PATH": str(found_in)}
    )
    command = [sys.executable, "-c", "\n".join([GATE, *lines])]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE
    )
    assert "" == done.stderr
    return done.stdout.strip()


def test_the_stand_in_is_started_and_stopped_once_a_window(tmp_path: Path) -> None:
    """A stop without a start, and a second stop, call nothing."""
    calls = stand_in(tmp_path / "a" / "libcudart.so")
    run(
        "gate.close(*here)",
        *["gate.open(*here); gate.close(*here); gate.close(*here)"] * 2,
        found_in=tmp_path / "a",
    )
    assert ["start", "stop", "start", "stop"] == calls.read_text().splitlines()


@pytest.mark.parametrize("name", ["libcudart.so.12", "libcudart-0123abcd.so.11.0"])
def test_what_is_loaded_already_is_preferred(tmp_path: Path, name: str) -> None:
    """The loaded runtime wins over one found by name and over torch's locking functions."""
    loaded, found = stand_in(tmp_path / "a" / name), stand_in(tmp_path / "b" / "libcudart.so")
    load = f"ctypes.CDLL({str(tmp_path / 'a' / name)!r}); sys.modules['torch'] = torch"
    assert "[]" == run(load, OPEN_AND_CLOSE, found_in=tmp_path / "b")
    assert ["start", "stop"] == loaded.read_text().splitlines()
    assert not found.exists()


def test_without_the_library_torchs_functions_are_called() -> None:
    """A torch that has the runtime inside, where there is no other."""
    assert "['start', 'stop']" == run(NO_LIBRARY, "sys.modules['torch'] = torch", OPEN_AND_CLOSE)


def test_the_interpreters_lock_is_free_meanwhile(tmp_path: Path) -> None:
    """The stand-in waits for another thread's word: with the lock held, it would hang."""
    os.mkfifo(stand_in(tmp_path / "a" / "libcudart.so", WAITS))
    write = f"with open({str(tmp_path / 'a' / 'calls')!r}, 'w') as pipe: pipe.write('x')"
    thread = f"def write():\n    {write}\nthreading.Thread(target=write).start()"
    assert "[]" == run(thread, OPEN_AND_CLOSE, found_in=tmp_path / "a")


def test_an_error_of_the_runtime_is_raised(tmp_path: Path) -> None:
    """By the function's name and the runtime's number; what was started is stopped all the same."""
    calls = stand_in(tmp_path / "a" / "libcudart.so", answer=36)
    attempt = "try: gate.open(*here)\nexcept RuntimeError as error: print(error)"
    assert "cudaProfilerStart returns error 36" == run(
        attempt, "gate.close(*here)", found_in=tmp_path / "a"
    )
    assert ["start", "stop"] == calls.read_text().splitlines()


def test_without_a_runtime_it_is_said() -> None:
    """The session then switches profiling off, and the job goes on."""
    attempt = "try: gate.open(*here)\nexcept OSError as error: print(error)"
    assert (
        "gate: cuda needs the CUDA runtime; found neither libno-such-runtime.so nor torch with "
        "CUDA. gate: auto needs none" == run(NO_LIBRARY, attempt)
    )


@pytest.mark.gpu
@pytest.mark.nsys
def test_a_gpu_is_captured_inside_the_gate(tmp_path: Path) -> None:
    """Kernels of the window are in the report, and none from before."""
    from gpuprof_nsight import read

    program = """
import torch
from gpuprof.backend import Window, Worker
from gpuprof_nsight._gates.cuda import CudaGate
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
    subprocess.run(
        [*command, "-o", str(tmp_path / "report"), sys.executable, "-c", program],
        check=True,
        timeout=DEADLINE,
    )
    tracks = read(tmp_path / "report.nsys-rep").recorded_tracks("gpuprof", "")
    assert [3] == [len(track.spans) for track in tracks if track.kind == "kernels"]

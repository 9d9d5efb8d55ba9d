"""The provider of ranges and the order of its calls, with stand-ins for AMD's libraries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SITE_PACKAGES = (
    Path(__file__).parents[1] / "support" / "rocprof_stand_in" / "lib" / "python" / "site-packages"
)

# The functions of the ROCm SDK's roctx that are used. An unbalanced pop aborts, as release 1.2.0 of
# the profiler does.
LIBRARY = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static int depth = 0;
static uint64_t last = 1ULL << 40;  /* does not fit into an int */
int roctxRangePushA(const char* message) {
    printf("push %s\\n", message); fflush(stdout); return depth++;
}
int roctxRangePop(void) {
    if (depth == 0) abort(); printf("pop\\n"); fflush(stdout); return --depth;
}
uint64_t roctxRangeStartA(const char* message) {
    printf("start %s\\n", message); fflush(stdout); return ++last;
}
void roctxRangeStop(uint64_t id) { if (id != last) abort(); printf("stop\\n"); fflush(stdout); }
"""

PROGRAM = """
from gpuprof_rocprof_sys import _markers, _ranges
print(type(_markers.markers()).__name__, flush=True)
with _ranges.open_range("outer", False):
    with _ranges.open_range("crossing", True):
        pass
"""

Run = Callable[..., list[str]]


def run(program: str, **variables: str) -> list[str]:
    """The lines that a program prints in an interpreter of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode
    assert "" == done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with a shared library that has the SDK's name and functions."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("sdk")
    (directory / "roctx.c").write_text(LIBRARY)
    target = directory / "librocprofiler-sdk-roctx.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(target), str(directory / "roctx.c")], check=True
    )
    return str(directory)


def test_the_sdks_library_comes_first(library: str) -> None:
    """By ctypes, with identifiers of 64 bits; also where the Python module is there."""
    expected = ["_Library", "push outer", "start crossing", "stop", "pop"]
    assert expected == run(PROGRAM, LD_LIBRARY_PATH=library, PYTHONPATH=str(SITE_PACKAGES))


def test_the_library_is_found_below_rocm_path(library: str, tmp_path: Path) -> None:
    """Where the loader does not know the place."""
    (tmp_path / "lib").symlink_to(library)
    assert "_Library" == run(PROGRAM, ROCM_PATH=str(tmp_path))[0]


def test_the_sdks_module_comes_second() -> None:
    """Without the library."""
    assert ["_Module"] == run(PROGRAM, PYTHONPATH=str(SITE_PACKAGES))


def test_the_tools_own_regions_come_third(tmp_path: Path) -> None:
    """Without the SDK; ranges that cross tasks are left out, for its regions cannot."""
    shutil.copytree(SITE_PACKAGES / "rocprofsys", tmp_path / "rocprofsys")
    program = (
        f"from rocprofsys import _collector\n_collector.initialize(['x'])\n{PROGRAM}\n"
        "import json; print(json.dumps(_collector._state['calls']))"
    )
    name, calls = run(program, PYTHONPATH=str(tmp_path), ROCPROFSYS_FILE_OUTPUT="false")
    assert "_Regions" == name
    assert [["push_region", "outer"], ["pop_region", "outer"]] == json.loads(calls)


def test_a_package_without_its_bindings_is_nobody(tmp_path: Path) -> None:
    """Without its bindings `rocprofsys` imports but has no `user`: no ranges, no failure."""
    (tmp_path / "rocprofsys").mkdir()
    for name in ("__init__", "user"):
        (tmp_path / "rocprofsys" / f"{name}.py").write_text("")
    assert ["NoneType"] == run(PROGRAM, PYTHONPATH=str(tmp_path))


def test_without_any_of_them_ranges_do_nothing() -> None:
    """A machine without ROCm runs the same code."""
    assert ["NoneType"] == run(PROGRAM)


def test_only_what_was_pushed_is_popped(library: str) -> None:
    """Out of order or in another thread, a range never pops without a push, which would abort."""
    program = """
import threading
from gpuprof_rocprof_sys._ranges import open_range
first, second = open_range("first", False), open_range("second", False)
first.__enter__(), second.__enter__()
first.__exit__(None, None, None)
second.__exit__(None, None, None)
foreign = open_range("foreign", False)
foreign.__enter__()
thread = threading.Thread(target=foreign.__exit__, args=(None, None, None))
thread.start(), thread.join()
with open_range("next", False):
    pass
"""
    expected = [
        "push first",
        "push second",
        "pop",
        "pop",
        "push foreign",
        "push next",
        "pop",
        "pop",
    ]
    assert expected == run(program, LD_LIBRARY_PATH=library)


def test_the_gate_is_a_started_range(library: str) -> None:
    """Opened on one thread and closed on another, once each, however often it is asked."""
    program = """
import threading
from gpuprof_rocprof_sys._gate import Gate
gate = Gate(python_frames=False)
gate.close()
gate.open()
for _ in range(2):
    thread = threading.Thread(target=gate.close)
    thread.start(), thread.join()
"""
    assert ["start gpuprof", "stop"] == run(program, LD_LIBRARY_PATH=library)


def test_the_gates_range_ends_though_the_frames_fail_to(library: str) -> None:
    """What the tool's profiler raises passes; nothing is recorded any more."""
    program = """
import sys, types
class Profiler:
    def start(self): pass
    def stop(self): raise RuntimeError("stop")
sys.modules["rocprofsys"] = types.SimpleNamespace(Profiler=Profiler, profiler_function=None)
from gpuprof_rocprof_sys._gate import Gate
gate = Gate(python_frames=True)
gate.open()
try:
    gate.close()
except RuntimeError as error:
    print("raised", error)
gate.close()
"""
    assert ["start gpuprof", "stop", "raised stop"] == run(program, LD_LIBRARY_PATH=library)


@pytest.mark.parametrize(
    "whose",
    [
        "of this thread",
        pytest.param(
            "of all", marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12")
        ),
    ],
)
def test_python_functions_reach_the_stand_in_inside_windows_only(whose: str) -> None:
    """`python_frames` starts and stops the launcher's profiler with the window."""
    program = """
import json
import threading
from rocprofsys import _collector
_collector.initialize(["x"])
from gpuprof_rocprof_sys._gate import Gate
def traced(): pass
def outside(): pass
gate = Gate(python_frames=True)
outside()
if WHOSE == "of all":
    thread = threading.Thread(target=gate.open)
    thread.start(), thread.join()
else:
    gate.open()
traced()
gate.close()
outside()
print(json.dumps([call[1] for call in _collector._state["calls"] if call[0] == "frame"]))
"""
    (calls,) = run(
        program.replace("WHOSE", repr(whose)),
        PYTHONPATH=str(SITE_PACKAGES),
        ROCPROFSYS_FILE_OUTPUT="false",
    )
    names = json.loads(calls)
    assert ("traced" in names) is True
    assert ("outside" in names) is False

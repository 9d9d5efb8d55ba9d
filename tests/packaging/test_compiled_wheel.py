"""gpuprof-timing and gpuprof-nsight install with a C compiler and without one, and do the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.scripts import CHECKOUT

HEADER = Path(sysconfig.get_paths()["include"], "Python.h")
NEEDS_COMPILER = pytest.mark.skipif(
    not HEADER.exists() or subprocess.call(["sh", "-c", "command -v cc >/dev/null"]) != 0,
    reason="needs a C compiler and Python.h",
)
EXAMPLE = re.findall("```python\n(.*?)```", (CHECKOUT / "timing/README.md").read_text(), re.DOTALL)[
    0
]


def build(project: Path, directory: Path, **environment: str) -> Path:
    """The only wheel of a project that is built in such an environment."""
    command = [
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
        *("--outdir", str(directory), str(project)),
    ]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, directory: Path) -> None:
    """Unpack a wheel."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"),
        *("--target", str(directory), str(wheel)),
    ]
    subprocess.run(command, check=True)


def run(wheel: Path, directory: Path) -> list[str]:
    """What the README's example prints where nothing but the wheel is installed."""
    install(wheel, directory)
    program = (
        f"import sys; sys.path.insert(0, {str(directory)!r})\n{EXAMPLE}\n"
        "import gpuprof_timing\nprint(gpuprof_timing.compiled, gpuprof_timing.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    )
    *tree, last = done.stdout.splitlines()
    compiled, path = last.split()
    assert path.startswith(str(directory))
    return [*(line.partition(":")[0].strip() for line in tree), compiled]


TREE = ["Learner 0 profile tree view", "train", "forward"]


def test_without_a_compiler(checkout_copy: Path, tmp_path: Path) -> None:
    """A broken compiler makes a wheel for every platform, which runs in Python."""
    wheel = build(checkout_copy / "timing", tmp_path / "dist", CC="false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert [*TREE, "False"] == run(wheel, tmp_path / "installed")


@NEEDS_COMPILER
def test_with_a_compiler(checkout_copy: Path, tmp_path: Path) -> None:
    """The wheel is for this Python and platform only, and its scopes are compiled."""
    wheel = build(checkout_copy / "timing", tmp_path / "dist")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.partition("-0")[2].partition("-")[2].startswith(f"{tag}-{tag}-")
    assert [*TREE, "True"] == run(wheel, tmp_path / "installed")


def compiled_ranges(wheel: Path, directory: Path) -> str:
    """Whether a range of the backend in a wheel is opened in C."""
    install(wheel, directory)
    program = (
        f"import sys; sys.path.insert(0, {str(directory)!r})\n"
        "from gpuprof_nsight._nvtx.ranges import __file__, compiled, make\n"
        "with make('ActorGroup', 3).open('train', False): print(compiled, __file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    compiled, path = done.stdout.split()
    assert path.startswith(str(directory))
    return compiled


@pytest.mark.parametrize(
    "variable",
    [("CC", "false"), pytest.param(("GPUPROF_NSIGHT_PURE", "1"), marks=pytest.mark.exhaustive)],
)
def test_the_backend_without_a_compiler(
    checkout_copy: Path, tmp_path: Path, variable: tuple[str, str]
) -> None:
    """A broken compiler, or one that is not to be used, makes a wheel for every platform."""
    wheel = build(checkout_copy / "backends/nsight", tmp_path / "dist", **dict([variable]))
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "False" == compiled_ranges(wheel, tmp_path / "installed")


@NEEDS_COMPILER
@pytest.mark.skipif(sys.platform != "linux", reason="NVTX's header comes with pip on Linux only")
def test_the_backend_with_a_compiler(checkout_copy: Path, tmp_path: Path) -> None:
    """The wheel is for this Python and platform only, and its ranges are compiled."""
    wheel = build(checkout_copy / "backends/nsight", tmp_path / "dist")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.partition("-0")[2].partition("-")[2].startswith(f"{tag}-{tag}-")
    assert "True" == compiled_ranges(wheel, tmp_path / "installed")

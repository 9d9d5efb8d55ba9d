"""Ranges arrive in reports with every release of nvtx, under every installed nsys."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpuprof_nsight import read
from support.patient_nsys import profile
from support.report_reader import NoRanges

pytestmark = pytest.mark.nsys

PROGRAM = """
import nvtx, sys, time
assert nvtx.__file__.startswith(sys.argv[1]), nvtx.__file__
from gpuprof_nsight._nvtx.ranges import Ranges
ranges = Ranges("ActorGroup", 3)
with ranges.open("pushed", False), ranges.open("started", True):
    pass
time.sleep(0.2)  # nsys 2023.4 now and then has nothing of a program that ends at once
"""
NSYS = [name for name in ("nsys", "nsys-trixie") if shutil.which(name)]


@pytest.fixture(scope="module", params=["0.2.10", "0.2.11", "0.2.12", ""])
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one release of nvtx; the newest for the empty name."""
    directory = tmp_path_factory.mktemp("nvtx")
    wanted = f"nvtx=={request.param}" if request.param else "nvtx"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(directory),
        wanted,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{wanted} cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    return directory


@pytest.mark.parametrize("nsys", NSYS)
def test_ranges_arrive(release: Path, nsys: str, tmp_path: Path) -> None:
    """Pushed and started ones, with the label that was written."""
    environment = {"PYTHONPATH": str(release)}
    command = [
        nsys,
        "profile",
        "-t",
        "nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "-o",
        str(tmp_path / "report"),
    ]
    profile([*command, sys.executable, "-c", PROGRAM, str(release)], environment)
    found = [found.name for found in read(tmp_path / "report.nsys-rep", nsys).ranges("gpuprof")]
    if not found:
        raise NoRanges(nsys)
    assert ["pushed", "started"] == found

"""The kit on the planted faults, each a mistake of another kind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.scripts import CHECKOUT

PLANTED = CHECKOUT / "testing" / "planted"
CORRECT = {"correct-tracer", "correct-wrapper", "correct-variables"}
ENTRY_POINT = "[gpuprof.backends]\nplanted = under_test:PlantedBackend\n"
LIMIT = 900.0
"""Seconds for a fault. The kit ends a check that hangs, and this a kit that does."""


def failed_check(fault: str, directory: Path) -> str:
    """The first check of the kit that fails on a fault; empty if none does."""
    metadata = directory / "planted-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINT)
    paths = [str(PLANTED), str(directory), os.environ.get("PYTHONPATH", "")]
    programs = [str(Path(sys.executable).parent), os.environ["PATH"]]  # one is a Python script
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": os.pathsep.join(programs),
        "TMPDIR": str(directory),
        "PYTEST_ADDOPTS": "",
        "GPUPROF_FAULT": fault,
    }
    # in the kit's own order: a fault may fail several checks
    options = f"-x -q -p no:cacheprovider -p no:randomly --confcutdir={PLANTED} -c {os.devnull}"
    with open(directory / "output", "w") as output:
        kit = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options.split(), str(PLANTED / "kit.py")],
            cwd=directory,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            kit.wait(LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(kit.pid, signal.SIGKILL)
            kit.wait()
    summary = re.search(r"^(?:FAILED .*::test_(\w+)|(ERROR) )", Path(output.name).read_text(), re.M)
    return (summary[1] or summary[2]) if summary is not None else ""


def test_a_planted_fault_is_caught(tmp_path: Path) -> None:
    """By the check that is for it."""
    assert "a_window_leaves_its_surroundings_alone" == failed_check("leaves-cwd", tmp_path)


@pytest.mark.exhaustive
def test_faults_are_caught_and_correct_backends_pass(tmp_path: Path) -> None:
    """The kit misses no planted fault, and finds none in the backends that have them."""
    code = "import faults; print(*(fault.name for fault in faults.FAULTS))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PLANTED, check=True, capture_output=True, text=True
    )
    names = {*done.stdout.split(), *CORRECT}
    with ThreadPoolExecutor(2) as pool:
        checks = pool.map(lambda name: failed_check(name, tmp_path / name), names)
    assert CORRECT == {name for name, check in zip(names, checks, strict=True) if not check}

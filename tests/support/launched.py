"""`gpuprof run` as a command, and what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from support.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "support" / "rocprof_stand_in" / "bin"
GPUPROF = [sys.executable, "-m", "gpuprof", "run"]
NSIGHT = ["--set", "backend=nsight", "--set", "nsight.preset=light"]


def environment(**more: str) -> dict[str, str]:
    """A shell with our environment, in which mpirun accepts to run as root."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, "PATH": path, **root, **more}


def run(
    directory: Path, command: Sequence[str], **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(
        command,
        cwd=directory,
        env=environment(**variables),
        timeout=DEADLINE,
        check=False,
        **streams,
    )


@contextmanager
def started(
    directory: Path, command: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[str], TextIO]]:
    """A ready command in its own process group, and its further output."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command, cwd=directory, env=environment(), start_new_session=True, **streams
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        yield process, process.stdout


def reports(directory: Path) -> dict[str, Path]:
    """The reports of all runs below a directory, by name."""
    return {
        file.name.removesuffix(".nsys-rep"): file
        for file in directory.glob("gpuprof-output/*/*/*.nsys-rep")
    }

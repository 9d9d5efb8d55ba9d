"""What the packaging tests share: a copy of the checkout, and the distributions built from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.scripts import CHECKOUT, script

PROJECTS: tuple[str, ...] = script("distributions").PROJECTS


@pytest.fixture(scope="session")
def checkout_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout's tracked files, so that builds write nothing into it."""
    lines = (CHECKOUT / ".gitignore").read_text().splitlines()
    ignored = [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    copy = tmp_path_factory.mktemp("checkout") / "gpuprof"
    shutil.copytree(CHECKOUT, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", *ignored))
    return copy


@pytest.fixture(scope="session")
def archives(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with every distribution's sdist, and the wheel built from it.

    `make dist` has built ours, which are tried as they are.
    """
    directory = tmp_path_factory.mktemp("archives")
    built = sorted(Path(os.environ.get("DISTRIBUTIONS", directory)).glob("gpuprof*"))
    for archive in built:
        shutil.copy(archive, directory)
    for project in PROJECTS:
        if built and not project.startswith("examples/"):
            continue
        command = [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(directory),
            str(checkout_copy / project),
        ]
        subprocess.run(command, check=True)
    return directory

"""Checks that every backend needs: writable directories with free space, and a recent pip."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import tempfile

import gpuprof_timing
from gpuprof_timing.recording import CAN_SAMPLE, PURE_VARIABLE

from gpuprof._distribution import NAME
from gpuprof.backend.types import Check

LEAST_FREE = 2**30
"""Minimum free bytes on disk: about the size of a report on a few steps of a large model."""
LEAST_SHARED = 2**24
"""Minimum bytes of shared memory, which tools use to move data out of the worker."""
_PIP_NORMALIZES = (23, 3)
"""The first release of pip that treats the extras `a_b` and `a-b` as one (PEP 685, changelog)."""


def checks(output_dir: str, staging_dir: str | None = None) -> list[Check]:
    """Check a machine for a job that writes to `output_dir`, or to `staging_dir` first."""
    return [
        _place("output directory", output_dir, "output_dir", LEAST_FREE),
        *(
            [_place("staging directory", staging_dir, "staging_dir", LEAST_FREE)]
            if staging_dir is not None
            else []
        ),
        _place("temporary directory", tempfile.gettempdir(), "TMPDIR", LEAST_FREE),
        _place("shared memory", "/dev/shm", "", LEAST_SHARED),
        _pip(),
        _scopes(),
    ]


def _scopes() -> Check:
    """Check whether scopes run in C or in Python. Never a failure: Python is only slower."""
    if gpuprof_timing.compiled:
        return Check("timing", True, "scopes are compiled")
    if os.environ.get(PURE_VARIABLE) == "1":
        return Check("timing", True, f"scopes run in Python: {PURE_VARIABLE}=1")
    remedy = "to compile them, reinstall gpuprof-timing where there are gcc and Python.h"
    lost = "" if CAN_SAMPLE else ", and stacks are not sampled, so no line of code is named"
    return Check("timing", True, f"scopes run in Python, which is slower{lost}", remedy)


def _place(name: str, path: str, key: str, least: int) -> Check:
    """Check a directory by writing a file into it, or into its nearest existing parent.

    The directory need not exist yet: the run creates it.
    """
    path = existing = os.path.abspath(path)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    elsewhere = (
        f"set {key} to another directory" if key else "mount it; in a container, with --shm-size=1g"
    )
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Check(name, False, f"{path} cannot be written: {error.strerror}", elsewhere)
    room = f"{path}, {free / 2**30:.1f} GiB free"
    return Check(
        name,
        free >= least,
        room,
        "" if free >= least else f"free {least / 2**30:.2g} GiB, or {elsewhere}",
    )


def _pip() -> Check:
    """Warn about an old pip, which only warns about an unknown extra and installs no backend.

    Never a failure, because packages that are installed already are not affected.
    """
    try:
        pip = importlib.metadata.version("pip")
        extras = importlib.metadata.metadata(NAME).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError as error:
        return Check(
            "pip", True, f"{error.name} is not installed in this environment; nothing to check"
        )
    release = tuple(int(number) for number in re.findall(r"\d+", pip)[:2])
    pitfalls = [extra for extra in extras if re.search("[-_.]", extra)]
    if release >= _PIP_NORMALIZES or not pitfalls:
        return Check("pip", True, f"pip {pip} installs extras in any spelling")
    spelt = ", ".join(f"{NAME}[{extra}]" for extra in pitfalls)
    detail = (
        f"pip {pip} accepts only this spelling of extras, and otherwise installs nothing and "
        f"warns: {spelt}"
    )
    return Check("pip", True, detail, "pip install --upgrade 'pip>=23.3'")

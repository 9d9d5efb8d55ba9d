"""What every backend needs of a machine: places to write, room in them, and a pip that finds extras
by their names.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import tempfile

from gpuprof.backend.types import Check

LEAST_FREE = 2**30
"""Bytes. A report of a few steps of a large model takes about as much."""
LEAST_SHARED = 2**24
"""Bytes in shared memory, through which tools bring their data out of the worker."""
_PIP_NORMALIZES = (23, 3)
"""From this release on pip compares extras as PEP 685 says: `a_b` and `a-b` are one. Source: pip's
changelog."""


def checks(output_dir: str, staging_dir: str | None = None) -> list[Check]:
    """Whether a job that writes to `output_dir`, or to `staging_dir` first, has what it needs here."""
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
    ]


def _place(name: str, path: str, key: str, least: int) -> Check:
    """Write a file into the directory, or the nearest one above that is there: this one is made by
    the run.
    """
    path = existing = os.path.abspath(path)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    elsewhere = (
        f"point {key} at another directory"
        if key
        else "mount it, in a container with --shm-size=1g"
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
    """An old pip takes an extra that it does not find with a warning, and installs no backend."""
    try:
        pip = importlib.metadata.version("pip")
        extras = importlib.metadata.metadata("gpuprof").get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError as error:
        return Check("pip", True, f"{error.name} is not installed by metadata, nothing to compare")
    release = tuple(int(number) for number in re.findall(r"\d+", pip)[:2])
    pitfalls = [extra for extra in extras if re.search("[-_.]", extra)]
    if release >= _PIP_NORMALIZES or not pitfalls:
        return Check("pip", True, f"pip {pip} finds extras however they are spelt")
    spelt = ", ".join(f"gpuprof[{extra}]" for extra in pitfalls)
    detail = (
        f"pip {pip} finds these extras in this spelling only, and otherwise installs nothing "
        f"but a warning: {spelt}"
    )
    return Check("pip", False, detail, "pip install --upgrade 'pip>=23.3'")

"""Names that gpuprof gives nsys: NVTX domains, sessions, and unfinished reports."""

from __future__ import annotations

import hashlib

from gpuprof.backend import Window, Worker

DOMAIN = "gpuprof"
"""The NVTX domain of the user's ranges; the gate's range has a separate one."""
GATE_DOMAIN = "gpuprof-gate"
GATE_RANGE = "gate"


EXTENSION = ".nsys-rep"


def session_name(worker: Worker) -> str:
    """A session name that is unique to this start of this worker.

    Nsys hangs on a name in use, and starts a stray agent on an unknown one. It allows only letters,
    digits and dashes, so a digest stands for run, group and rank.
    """
    digest = hashlib.blake2b(f"{worker.run}/{worker.name}".encode(), digest_size=6).hexdigest()
    return f"gpuprof-{digest}-{worker.incarnation}"


def raw_stem(worker: Worker) -> str:
    """The path where nsys writes, before a report gets its final name.

    Each restart of the worker has its own.
    """
    return f"{worker.directory}/{worker.file_stem}"


def raw_window(worker: Worker, window: Window) -> str:
    """The path where nsys writes one window's report, with the session gate."""
    return f"{raw_stem(worker)}.{window.number}"


def as_output(path: str) -> str:
    """Escape a path for nsys's option ``-o``, which expands %.

    >>> as_output("/out/100%/report")
    '/out/100%%/report'
    """
    return path.replace("%", "%%")

"""The names that we give nsys: domains, sessions, and reports before they are final."""

from __future__ import annotations

import hashlib

from gpuprof.backend import Window, Worker

DOMAIN = "gpuprof"
"""The domain of the user's ranges. The gate's own range has a domain of its own."""
GATE_DOMAIN = "gpuprof-gate"
GATE_RANGE = "gate"


EXTENSION = ".nsys-rep"


def session_name(worker: Worker) -> str:
    """A session name that is unique to this start of this worker.

    With a name in use, nsys hangs; with a wrong name, it starts a stray agent. Nsys allows letters,
    digits and dashes only, so a digest stands for run, group and rank.
    """
    digest = hashlib.blake2b(f"{worker.run}/{worker.name}".encode(), digest_size=6).hexdigest()
    return f"gpuprof-{digest}-{worker.incarnation}"


def raw_stem(worker: Worker) -> str:
    """The path where nsys writes, before a report gets its final name.

    A restart of the worker has another one.
    """
    return f"{worker.directory}/{worker.file_stem}"


def raw_window(worker: Worker, window: Window) -> str:
    """The path where nsys writes one window, under the session gate."""
    return f"{raw_stem(worker)}.{window.number}"


def as_output(path: str) -> str:
    """Escape a path for nsys's option ``-o``, which expands %.

    >>> as_output("/out/100%/report")
    '/out/100%%/report'
    """
    return path.replace("%", "%%")

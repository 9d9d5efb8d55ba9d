"""Names that nsys is given: of domains, of sessions, and of reports on their way."""

from __future__ import annotations

import hashlib

from gpuprof.backend import Window, Worker

DOMAIN = "gpuprof"
"""Of the ranges. The gate has another one: it is not of the user's."""
GATE_DOMAIN = "gpuprof-gate"
GATE_RANGE = "gate"


EXTENSION = ".nsys-rep"


def session_name(worker: Worker) -> str:
    """A name that no other start of any worker has: nsys hangs on one that is taken, and starts a
    stray agent for a wrong one.

    Nsys wants letters, digits and dashes, so run, group and rank are in it as a digest.
    """
    digest = hashlib.blake2b(f"{worker.run}/{worker.name}".encode(), digest_size=6).hexdigest()
    return f"gpuprof-{digest}-{worker.incarnation}"


def raw_stem(worker: Worker) -> str:
    """Where nsys writes, before a report gets its name.

    Not a name that a restart of the worker would take.
    """
    return f"{worker.directory}/{worker.file_stem}"


def raw_window(worker: Worker, window: Window) -> str:
    """Where it writes one window, if it is told for each."""
    return f"{raw_stem(worker)}.{window.number}"


def as_output(path: str) -> str:
    """A path as the value of nsys's option ``-o``, in which % has a meaning.

    >>> as_output("/out/100%/report")
    '/out/100%%/report'
    """
    return path.replace("%", "%%")

"""Isolation of test processes: an own directory, and no leftover files or processes."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprof.backend import share_temporary

MARK = "GPUPROF_TEST_PROCESS"
"""The variable that every process inherits which a test starts, also one that has left its parent.
"""

PATIENCE = 60.0
"""Seconds in which what was told to end must have ended: Ray's workers notice within a few that
their node is gone."""


@contextmanager
def own_place() -> Iterator[None]:
    """An empty temporary directory, which tests must leave without files or processes.

    Ray's workers get as much of the machine as everything else.

    Raises:
        AssertionError: something is left, with its name. The processes are killed.
    """
    mark = uuid.uuid4().hex
    around = tempfile.gettempdir()
    place = tempfile.mkdtemp(prefix="gp-")
    # not below TMPDIR, which may be long: the path of a socket has at most 107 bytes
    ray = tempfile.mkdtemp(prefix="gp-", dir="/tmp")
    variables = {
        MARK: mark,
        "TMPDIR": place,
        "RAY_TMPDIR": ray,
        # Ray starts its workers with niceness 15: beside tests that compute, they would crawl
        "RAY_worker_niceness": "0",
    }
    before = dict(os.environ)
    os.environ.update(variables)
    tempfile.tempdir = None
    # Ray's Cluster writes its address there, and does not make it
    os.mkdir(os.path.join(ray, "ray"))
    # nsys 2022.4: the lock of the memory that all of this machine's share
    share_temporary(place, ["nvidia"], around)
    own = {"nvidia", "state"}
    try:
        yield
        processes = _wait_for_the_end(mark)
        left = (path.name for path in Path(place).iterdir() if path.name not in own)
        files = sorted(name for name in left if not name.startswith(EXPECTED))
        after = dict(os.environ)
    finally:
        for name in variables:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]
        tempfile.tempdir = None
        for directory in (place, ray):
            shutil.rmtree(directory, ignore_errors=True)
    assert not processes, "processes that the tests have left running:\n" + "\n".join(processes)
    assert not files, f"files that the tests have left in {place}: {', '.join(files)}"
    names = {*before, *after} - {*variables, "PYTEST_CURRENT_TEST"}
    changed = sorted(
        name
        for name in names
        if before.get(name) != after.get(name) and not name.startswith(LIBRARIES)
    )
    assert not changed, f"variables that the tests have left changed: {', '.join(changed)}"


EXPECTED = ("torchinductor_", "torchelastic_", "gpuprof-")
"""How the names of what may stay begin.

Torch keeps a cache for the user; a torchrun that is killed keeps its logs. A profiler's temporary
directory stays where its worker was killed in the middle of a window: the data in it may be all
that there is, so gpuprof leaves it alone.
"""
LIBRARIES = ("PYTHONBREAKPOINT", "RAY_", "TORCH", "TRITON_", "KMP_", "CUDA_MODULE_LOADING")
"""How the variables begin that Ray and torch set in any process that uses them."""


def _wait_for_the_end(mark: str) -> list[str]:
    """Wait until no process has the mark; those that still do are killed.

    Returns:
        Process id and command line of each that was killed.
    """
    deadline = time.monotonic() + PATIENCE
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return [f"{pid}: {command}" for pid, command in left.items()]


def _marked(mark: str) -> dict[int, str]:
    """The command lines of all processes that have inherited the mark, by process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            command = (
                (entry / "cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
                .strip()
            )
        except OSError:  # it has ended, or is somebody else's
            continue
        # which ends with this process
        if command and "multiprocessing.resource_tracker" not in command:
            found[int(entry.name)] = command
    return found

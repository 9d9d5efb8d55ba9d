"""A tool's own temporary directory, by which its processes are known."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import zlib
from collections.abc import Iterable, Iterator

from .processes import place, process_start

_PREFIX = "gpuprof-"


def make_scratch(environment: dict[str, str], shared: Iterable[str]) -> tuple[str, list[str]]:
    """Make a temporary directory for the tool alone.

    By it the tool's leftovers and its running processes are known to be ours.

    Args:
        environment: of the worker.
        shared: what the tool shares with all others of its kind; see `share_temporary`.

    Returns:
        The directory, empty if there is none, and what gives the worker back the one that it would
        have had.
    """
    own = environment.get("TMPDIR")
    parent = own or "/tmp"
    try:
        scratch = os.path.join(parent, f"{_prefix()}{os.getpid()}-{process_start(os.getpid())}")
        os.mkdir(scratch, 0o700)
    except OSError:
        return "", []
    share_temporary(scratch, shared, parent)
    return scratch, ["/usr/bin/env", *(["-u", "TMPDIR"] if own is None else [f"TMPDIR={own}"])]


def share_temporary(directory: str, names: Iterable[str], parent: str | None = None) -> None:
    """Link what a tool's processes on a machine must share, such as a lock, into `directory`.

    Args:
        directory: the tool's temporary one.
        names: of folders, linked to those of the same name in `parent`; failures are ignored.
        parent: the temporary directory that the tool would have had; by default this process's.
    """
    parent = parent or os.environ.get("TMPDIR") or "/tmp"
    for name in names:
        target = os.path.join(parent, name)
        with contextlib.suppress(OSError):
            if not os.path.isdir(target):
                os.mkdir(target)
                os.chmod(target, 0o777)  # whoever comes first makes it for all users
        with contextlib.suppress(OSError):
            os.symlink(target, os.path.join(directory, name))


def _prefix() -> str:
    """The prefix of the directories made on this host and in this container.

    Containers may share one ``/tmp``, and their process ids mean nothing to each other. Short,
    since a socket's path has at most 107 characters.
    """
    return f"{_PREFIX}{zlib.crc32(place().encode()):08x}-"


def remove_those_of_the_dead(parent: str, disposable: Iterable[str]) -> None:
    """Remove stale temporary directories of tools, left where a shim was killed.

    Those with leftovers stay, as in `remove_scratch`. Scans the processes once.

    Args:
        parent: where the directories are.
        disposable: wildcards for the names of files that hold no recorded data.

    Raises:
        OSError: `parent` cannot be read.
    """
    prefix = _prefix()
    unused = []
    for name in os.listdir(parent):
        pid, _, start = name.removeprefix(prefix).partition("-")
        if name.startswith(prefix) and pid.isdigit() and process_start(int(pid)) != start:
            directory = os.path.join(parent, name)
            unused += [] if _has_leftovers(directory, disposable) else [directory]
    used = {directory for _, directory in _processes()} if unused else set()
    for directory in unused:
        if directory not in used:
            _remove(directory)


def remove_scratch(scratch: str, leftovers: bool = False) -> None:
    """Remove the tool's temporary directory, unless it holds an unfinished report.

    It also stays while a process of the tool lives, which is known by it.

    Args:
        leftovers: remove it with its leftovers.
    """
    if scratch and not any(tool_processes(scratch)) and (leftovers or not _has_leftovers(scratch)):
        _remove(scratch)


def _remove(directory: str) -> None:
    from shutil import rmtree  # slow to import

    rmtree(directory, ignore_errors=True)


def _has_leftovers(directory: str, disposable: Iterable[str] = ()) -> bool:
    from fnmatch import fnmatchcase  # slow to import

    files = ((folder, name) for folder, _, names in os.walk(directory) for name in names)
    return any(
        _size(os.path.join(folder, name))
        and not any(fnmatchcase(name, pattern) for pattern in disposable)
        for folder, name in files
    )


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # its process is still cleaning up
        return 0


def tool_processes(directory: str) -> Iterator[int]:
    """The other processes with `directory` as ``TMPDIR``.

    A worker's own value is restored, so it is not among them.
    """
    return (pid for pid, temporary in _processes() if temporary == directory)


def _processes() -> Iterator[tuple[int, str]]:
    """All other processes that have a ``TMPDIR``, each with its value."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    variables = file.read().split(b"\0")
            except OSError:
                continue
            yield from (
                (int(name), os.fsdecode(variable[7:]))
                for variable in variables
                if variable.startswith(b"TMPDIR=")
            )


def end_tool(directory: str, at_once: bool = False) -> None:
    """End a tool's remaining processes: wait, then send SIGTERM, then SIGKILL.

    Args:
        directory: the tool's own temporary directory.
        at_once: skip the wait, since the tool has nothing to finish.
    """
    for number, patience in (
        (None, 0.0 if at_once else 5.0),
        (signal.SIGTERM, 5.0),
        (signal.SIGKILL, 1.0),
    ):
        if number is not None:
            for pid in tool_processes(directory):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        deadline = time.monotonic() + patience
        while any(tool_processes(directory)) and time.monotonic() < deadline:
            time.sleep(0.02)

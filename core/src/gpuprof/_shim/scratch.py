"""A tool's temporary directory, and its processes, told from everybody else's by that: only they
have it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import zlib
from collections.abc import Iterable, Iterator

from .files import file_size
from .processes import place, process_start

_PREFIX = "gpuprof-"


def make_scratch(environment: dict[str, str], shared: Iterable[str]) -> tuple[str, list[str]]:
    """A temporary directory for the tool alone, so that what it leaves there, and what of it still
    runs, is known to be ours.

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
    """Let a tool that has `directory` for itself find there what all of its processes on a machine
    must share, such as a lock.

    Args:
        directory: the tool's temporary one.
        names: of folders in it, that become links to those of the same name in `parent`. What
            cannot be linked is left out.
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
    """How the names of those directories begin whose makers can be told alive from dead here:
    containers may share one ``/tmp``.

    Short, for tools have sockets in them, whose paths have 107 characters at most.
    """
    return f"{_PREFIX}{zlib.crc32(place().encode()):08x}-"


def remove_those_of_the_dead(parent: str, worthless: Iterable[str]) -> None:
    """Remove tools' temporary directories that nobody is left to remove: Ray kills shims, and so do
    users.

    What has leftovers stays, as in `remove_scratch`. The processes are gone through once, however
    many directories there are.

    Args:
        parent: where the directories are.
        worthless: wildcards for the names of files that are no leftovers.

    Raises:
        OSError: `parent` cannot be read.
    """
    prefix = _prefix()
    unused = []
    for name in os.listdir(parent):
        pid, _, start = name.removeprefix(prefix).partition("-")
        if name.startswith(prefix) and pid.isdigit() and process_start(int(pid)) != start:
            directory = os.path.join(parent, name)
            unused += [] if _has_leftovers(directory, worthless) else [directory]
    used = {directory for _, directory in _processes()} if unused else set()
    for directory in unused:
        if directory not in used:
            _remove(directory)


def remove_scratch(scratch: str, leftovers: bool = False) -> None:
    """Remove the tool's temporary directory, unless it has `leftovers`: an unfinished report is all
    that there is of it.

    While a process of the tool's lives it stays: by it the process is known, and waited for.
    """
    if scratch and not any(tool_processes(scratch)) and (leftovers or not _has_leftovers(scratch)):
        _remove(scratch)


def _remove(directory: str) -> None:
    from shutil import rmtree  # slow to import

    rmtree(directory, ignore_errors=True)


def _has_leftovers(directory: str, worthless: Iterable[str] = ()) -> bool:
    from fnmatch import fnmatchcase  # slow to import

    files = ((folder, name) for folder, _, names in os.walk(directory) for name in names)
    return any(
        file_size(os.path.join(folder, name))
        and not any(fnmatchcase(name, pattern) for pattern in worthless)
        for folder, name in files
    )


def tool_processes(directory: str) -> Iterator[int]:
    """The processes of which the environment names `directory` as ``TMPDIR``, but for this one.

    A worker has its own back.
    """
    return (pid for pid, temporary in _processes() if temporary == directory)


def _processes() -> Iterator[tuple[int, str]]:
    """All processes but this one that have a ``TMPDIR``, and that."""
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
    """End what a tool has left running, and nobody else's: by itself if it will, then by SIGTERM,
    then by SIGKILL.

    Args:
        directory: the temporary directory that the tool was given for itself.
        at_once: it has nothing to finish, and is given no time for that.
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

"""A tool's own temporary directory, which also identifies its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping

from .files import file_size
from .ownership import OWNER, note_owner, owner_of
from .processes import place, process_start
from .safe import regular_files, remove_tree

_PREFIX = "gpuprof-"
PATIENCE = 45.0
"""Seconds that a tool may be idle after its worker's end. A process forked while nsys writes its
report can stall nsys for 30 s."""
STALLED = (
    f"gpuprof ended the profiler, which did nothing for {PATIENCE:.0f} s after the worker's end"
)


def make_scratch(
    environment: dict[str, str], shared: Iterable[str], owner: Mapping[str, object]
) -> tuple[str, list[str]]:
    """Make a temporary directory for the tool alone.

    The directory's name identifies the tool's leftovers and running processes as ours.

    Args:
        shared: the folders that all instances of the tool share; see `share_temporary`.
        owner: the content of the directory's owner file; see `scratch_owner`.

    Returns:
        The directory, and a command prefix that restores the worker's own ``TMPDIR``.
    """
    own = environment.get("TMPDIR")
    parent = own or "/tmp"
    scratch = os.path.join(parent, f"{_prefix()}{os.getpid()}-{process_start(os.getpid())}")
    os.mkdir(scratch, 0o700)
    try:
        note_owner(scratch, owner)
    except OSError:
        _remove(scratch)
        raise
    share_temporary(scratch, shared, parent)
    return scratch, ["/usr/bin/env", *(["-u", "TMPDIR"] if own is None else [f"TMPDIR={own}"])]


def share_temporary(directory: str, names: Iterable[str], parent: str | None = None) -> None:
    """Link folders that a tool's processes on one machine must share, such as a lock's.

    Args:
        names: folders in `parent` to link to, created if absent; failures are ignored.
        parent: the tool's default temporary directory. Default: this process's.
    """
    parent = parent or os.environ.get("TMPDIR") or "/tmp"
    for name in names:
        target = os.path.join(parent, name)
        with contextlib.suppress(OSError):
            if not os.path.isdir(target):
                os.mkdir(target)
                os.chmod(target, 0o777)  # the first process creates it for all users
        with contextlib.suppress(OSError):
            os.symlink(target, os.path.join(directory, name))


def _prefix() -> str:
    """The directories' prefix, unique to this host and container.

    Containers may share ``/tmp`` but not process ids. The prefix is short because a socket's path
    can have at most 107 characters.
    """
    return f"{_PREFIX}{zlib.crc32(place().encode()):08x}-"


def remove_stale_scratch(parent: str) -> None:
    """Remove the temporary directories of killed shims.

    Keeps directories with leftovers, as `remove_scratch` does, and directories that were not made
    by this user's shims. Scans the processes once.
    """
    prefix = _prefix()
    candidates = []
    for name in os.listdir(parent):
        pid, _, start = name.removeprefix(prefix).partition("-")
        if name.startswith(prefix) and pid.isdigit() and process_start(int(pid)) != start:
            directory = os.path.join(parent, name)
            owner, problem = owner_of(directory)
            if not problem and not _has_leftovers(directory, _disposable(owner)):
                candidates.append(directory)
    busy = {directory for _, directory in _processes()} if candidates else set()
    for directory in candidates:
        if directory not in busy:
            _remove(directory)


def _disposable(owner: Mapping[str, object]) -> list[str]:
    """The wildcards for files that hold no recorded data, as the tool that left them had them."""
    wildcards = owner.get("disposable")
    return list(filter(_is_text, wildcards)) if isinstance(wildcards, list) else []


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def remove_scratch(scratch: str, leftovers: bool = False) -> None:
    """Remove the tool's temporary directory, unless it holds an unfinished report.

    Also keeps it while one of the tool's processes is running.

    Args:
        scratch: the directory, empty for none. It must be known to be ours: made by this process,
            or without a `scratch_problem`.
        leftovers: remove it even if it holds an unfinished report.
    """
    if scratch and not any(tool_processes(scratch)) and (leftovers or not _has_leftovers(scratch)):
        _remove(scratch)


def _remove(directory: str) -> None:
    with contextlib.suppress(OSError):
        remove_tree(directory)


def _has_leftovers(directory: str, disposable: Iterable[str] = ()) -> bool:
    from fnmatch import fnmatchcase  # slow to import

    patterns = (OWNER, f".{OWNER}.*.tmp", *disposable)
    return any(
        file_size(entry.path) and not any(fnmatchcase(entry.name, pattern) for pattern in patterns)
        for entry in regular_files(directory)
    )


def tool_processes(directory: str) -> Iterator[int]:
    """The ids of the tool's processes: those with `directory` as ``TMPDIR``.

    Excludes this process, the worker, whose own ``TMPDIR`` was restored, and other users'
    processes.
    """
    return (pid for pid, temporary in _processes() if temporary == directory and _is_ours(pid))


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _processes() -> Iterator[tuple[int, str]]:
    """The id and the ``TMPDIR`` of each other process that has one."""
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


def work_of(directory: str) -> tuple[dict[str, int], bool]:
    """The work done so far by the tool with this temporary directory.

    Source: proc(5).

    Returns:
        The processor time of each thread in clock ticks, and whether any thread is running or
        waiting for a disk.
    """
    ticks, busy = {}, False
    for pid in tool_processes(directory):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat") as file:
                    state, *fields = file.read().rpartition(")")[2].split()
                ticks[thread] = int(fields[10]) + int(fields[11])
                busy |= state in "RD"
    return ticks, busy


class Progress:
    """Measures how long a tool has been idle."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._ticks: dict[str, int] = {}
        self._since = time.monotonic()

    def idle(self) -> float:
        """Seconds since one of the tool's processes last ran or waited for a disk.

        0 if the tool has no processes, because it may run inside the worker.
        """
        ticks, busy = work_of(self._directory)
        if busy or not ticks or ticks != self._ticks:
            self._ticks, self._since = ticks, time.monotonic()
            return 0.0
        return time.monotonic() - self._since


def end_tool(directory: str, at_once: bool = False) -> None:
    """End a tool's remaining processes: wait, send SIGTERM, then SIGKILL.

    Args:
        directory: the tool's own temporary directory; see `remove_scratch` for when it is ours.
        at_once: skip the wait, because the tool has nothing to finish.
    """
    for number, patience in (
        (None, 0.0 if at_once else 5.0),
        (signal.SIGTERM, 5.0),
        (signal.SIGKILL, 1.0),
    ):
        deadline, recipients = time.monotonic() + patience, set[int]()
        while True:
            processes = set(tool_processes(directory))
            if (
                not processes
            ):  # a look takes seconds beside a thread that does not let go of the GIL
                return
            if number is not None:
                for pid in processes - recipients:  # a second SIGTERM may end in another way
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            recipients |= processes
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)

"""The paths of a worker's files on its node."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from typing import Literal, TypedDict

from .node import node_name
from .row import Row
from .safe import replacing

STATUS_VERSION = 1
ToolState = Literal["running", "finishing", "ended", "unwrapped", "unselected"]
"""``finishing``: the worker has ended, but the profiler has not. ``unwrapped``: the profiler could
not be started. ``unselected``: the key `nodes` excludes this node.
"""


class ToolStatus(TypedDict):
    """The state of the profiler for one start of a worker.

    Args:
        reason: why the worker runs unwrapped, or why gpuprof ended the profiler.
        exit_code: the profiler's exit code or, if the profiler loses it, the script's own;
            ``None`` if it is unknown, for example after a kill.
        shim: the process id of the shim that stays in front of the worker; 0 without one.
        pid: the profiler's process id; 0 without one.
        start: the profiler's start time, which tells it from a later process with the same id.
        scratch: the profiler's own temporary directory; empty without one.
        marks: whether the command records that the worker has started.
    """

    version: int
    state: ToolState
    reason: str
    exit_code: int | None
    shim: int
    pid: int
    start: str | None
    scratch: str
    tool: str
    tool_version: str | None
    marks: bool


def tool_status(
    state: ToolState,
    *,
    reason: str = "",
    shim: int = 0,
    scratch: str = "",
    tool: str = "",
    tool_version: str | None = None,
    marks: bool = False,
) -> ToolStatus:
    """The status of a profiler that has not run yet."""
    return {
        "version": STATUS_VERSION,
        "state": state,
        "reason": reason,
        "exit_code": 0,
        "shim": shim,
        "pid": 0,
        "start": None,
        "scratch": scratch,
        "tool": tool,
        "tool_version": tool_version,
        "marks": marks,
    }


def directory(row: Row) -> str:
    """The directory of a worker's files on this node."""
    return os.path.join(row["output_dir"], row["run"], node_name(row))


def private_file(row: Row, name: str) -> str:
    """The path of a file for gpuprof's own use, in a folder next to the reports."""
    return os.path.join(directory(row), ".gpuprof", name)


def started_file(row: Row, incarnation: str) -> str:
    """The file in which the worker's process records itself at this start."""
    return private_file(row, f"{start_stem(row, incarnation)}.target")


def status_file(row: Row, incarnation: str) -> str:
    """The file in which the shim writes its `ToolStatus`."""
    return private_file(row, f"{start_stem(row, incarnation)}.tool")


def log_file(row: Row, incarnation: str) -> str:
    """The log of the profiler's own output, next to the reports."""
    return os.path.join(directory(row), f"{start_stem(row, incarnation)}.log")


def exit_code_file(row: Row, incarnation: str) -> str:
    """The file for the exit code of a worker's script, if the command has `KEEP_EXIT_CODE`."""
    return private_file(row, f"{start_stem(row, incarnation)}.exit-code")


def start_stem(row: Row, incarnation: str) -> str:
    """The common prefix of the files of this start of the worker."""
    return f"{row['group']}-{row['rank']}.start-{incarnation}"


def file_size(path: str | os.PathLike[str]) -> int:
    """A file's size in bytes; 0 if it is not a regular file or has just been removed."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


_HARDLY_ANY = 2**20
"""Bytes. A disk with less free space counts as full: a report of one empty step takes a tenth of
this."""


def is_full(directory: str) -> bool:
    """Whether the disk of a directory is full."""
    with suppress(OSError):
        disk = os.statvfs(directory)
        return disk.f_bavail * disk.f_frsize < _HARDLY_ANY
    return False


def write_json(path: str, data: Mapping[str, object]) -> None:
    """Write a file atomically.

    On a full disk, overwrites the file in place if its disk blocks suffice. A reader may then see
    half of the new content, but that is better than losing the latest state.
    """
    content = json.dumps(data).encode()
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT) or not _fits_in_place(path, content):
            raise


def _fits_in_place(path: str, content: bytes) -> bool:
    """Overwrite a file if the new content needs no more disk blocks. Returns whether it did."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(file)
        whole = content.ljust(status.st_size)  # JSON may end in spaces
        if not stat.S_ISREG(status.st_mode) or len(whole) > 512 * status.st_blocks:
            return False
        return os.pwrite(file, whole, 0) == len(whole)
    finally:
        os.close(file)


def umask() -> int | None:
    """This process's umask; ``None`` on kernels before 4.7, which do not report it.

    `os.umask` would have to change the umask to read it, and other threads may be creating files.
    """
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return None


def follow_umask(path: str) -> None:
    """Apply this process's umask to a file's permissions.

    For files that a tool wrote with another umask.
    """
    mask = umask()
    with suppress(OSError):  # gone, or somebody else's
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode)
        if mask is not None and mode & mask and not stat.S_ISLNK(status.st_mode):
            os.chmod(path, mode & ~mask)

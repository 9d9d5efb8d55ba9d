"""Opens, reads, writes and removes files that may not be ours.

A run directory may come from somebody else, or be damaged. No function here follows a link below
the given directory, waits for a FIFO, or reads without a limit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

LARGEST = 64 * 2**20
"""Most bytes of a JSON file. A run's files are far smaller; only its manifest may be larger."""
LARGEST_HOLES = 2**30
"""Most bytes of holes in a sparse file that is read to its end."""
_MOST_BRACKETS = 2**18
"""Most lists and mappings in a JSON file, plus one for every 16 bytes of the file. An empty list or
mapping has two bytes in the file, but takes a hundred in memory."""
DEEPEST = 400
"""Most levels of nesting in a JSON file. Python's parser gives up at about 1,000."""


class UnsafeFile(ValueError):
    """An unusable file: not regular, too large, nested too deeply, or not JSON."""


def open_regular(path: str | os.PathLike[str], dir_fd: int | None = None) -> int:
    """Open a regular file for reading, without following a link.

    Args:
        dir_fd: the open directory to which `path` is relative. Default: the working directory.

    Raises:
        UnsafeFile: it is a link, a FIFO, a device or a directory.
    """
    _refuse_others(os.stat(path, dir_fd=dir_fd, follow_symlinks=False))
    try:
        handle = os.open(
            path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd
        )
    except OSError as error:  # it has just been replaced
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UnsafeFile("not a regular file") from None
        raise
    try:
        _refuse_others(os.fstat(handle))
    except UnsafeFile:
        os.close(handle)
        raise
    return handle


def not_private(
    status: os.stat_result, is_kind: Callable[[int], bool] = stat.S_ISDIR
) -> str | None:
    """Why a directory, or another kind of file, is not trusted; ``None`` if it is this user's."""
    if not is_kind(status.st_mode):
        return "not the expected kind of file, or a link"
    if status.st_uid != os.geteuid():
        return f"owned by user {status.st_uid}"
    if status.st_mode & 0o077:
        return f"accessible to others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _refuse_others(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeFile("a link; expected a regular file")
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile("not a regular file")


def read_bytes(
    path: str | os.PathLike[str], most: int = LARGEST, dir_fd: int | None = None
) -> bytes:
    """Read a regular file of a limited size."""
    with open(open_regular(path, dir_fd), "rb") as file:
        # the size first: a sparse file may have more than memory holds
        content = b"" if os.fstat(file.fileno()).st_size > most else file.read(most + 1)
        if len(content) > most or os.fstat(file.fileno()).st_size > most:
            raise UnsafeFile(f"larger than {most} bytes")
        return content


def load_json(path: str | os.PathLike[str], most: int = LARGEST, dir_fd: int | None = None) -> Any:
    """Parse a JSON file of a limited size and depth.

    Raises:
        UnsafeFile: as `read_bytes`; or it is not JSON, or nested too deeply.
    """
    return parse_json(read_bytes(path, most, dir_fd))


def parse_json(text: bytes) -> Any:
    """Parse JSON of a limited depth, using at most about 20 times its size in memory.

    Raises:
        UnsafeFile: the text is not JSON, is nested too deeply, or consists mostly of brackets.

    >>> parse_json(b'{"a": [1]}')
    {'a': [1]}
    """
    brackets = text.count(b"[") + text.count(b"{")
    if brackets > _MOST_BRACKETS + len(text) // 16:
        raise UnsafeFile(f"{brackets:,} lists and mappings in {len(text):,} bytes are too many")
    too_deep = f"nested more than {DEEPEST} levels deep"
    try:
        data = json.loads(text.decode())
    except RecursionError:
        raise UnsafeFile(too_deep) from None
    except ValueError as error:
        raise UnsafeFile(f"not JSON: {error}") from None
    level = [data]
    for _ in range(DEEPEST + 1):
        level = [
            value
            for container in level
            if isinstance(container, (dict, list))
            for value in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return data
    raise UnsafeFile(too_deep)


def refuse_holes(handle: int) -> None:
    """Refuse a sparse file with large holes, which take memory when read but no disk space.

    Small holes are allowed, because copying a file can turn its zeros into holes.

    Raises:
        UnsafeFile: its holes have more than `LARGEST_HOLES` bytes in all.
    """
    end, position, holes = os.fstat(handle).st_size, 0, 0
    with contextlib.suppress(OSError):  # the file system has no sparse files
        while position < end and holes <= LARGEST_HOLES:
            begin = os.lseek(handle, position, os.SEEK_HOLE)
            try:
                position = os.lseek(handle, begin, os.SEEK_DATA)
            except OSError:  # the last hole
                position = end
            holes += position - begin
    os.lseek(handle, 0, os.SEEK_SET)
    if holes > LARGEST_HOLES:
        raise UnsafeFile(f"more than {LARGEST_HOLES // 2**20} MiB of the file are holes")


def create(path: str | os.PathLike[str], mode: int = 0o666) -> int:
    """Create a new file for writing.

    Replaces any file or link of the same name, such as a stale temporary file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file under a random temporary name, and rename it once it is complete.

    If `path` is a link, replaces the link and not its target. After any exception, an existing file
    stays as it was.
    """
    directory, name = os.path.split(os.fspath(path))
    temporary = os.path.join(directory, f".{name}.{os.urandom(8).hex()}.tmp")
    try:
        with open(create(temporary, mode), "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def take_name(file: str, name: str) -> bool:
    """Rename a finished file, unless its new name is taken."""
    try:
        os.link(file, name)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        os.replace(file, name)
    else:
        os.unlink(file)
    return True


def publish(temporary: str, path: str) -> bool:
    """Rename a finished file as `take_name` does, or remove it if the new name is taken."""
    try:
        return take_name(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def open_directory(path: str | os.PathLike[str], dir_fd: int | None = None) -> int:
    """Open a directory, but not through a link."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


def make_directory(path: str) -> None:
    """Make a directory and its missing parents, unless the directory exists.

    Raises:
        OSError: the directory cannot be made, or is a link.
    """
    os.makedirs(path, exist_ok=True)
    os.close(open_directory(path))


def is_ours(status: os.stat_result) -> bool:
    """Whether this user owns a file and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def regular_files(directory: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """All regular files below a directory, at any depth. Skips unreadable folders and files."""
    folders = [os.fspath(directory)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry


def remove_tree(directory: str | os.PathLike[str], last: str = "") -> None:
    """Remove a directory and everything below it. Removes links, never their targets.

    Nested directories are moved up before they are emptied, so any depth can be removed. Two
    processes may remove the same directory at once: if one is killed, the other finishes.

    Args:
        last: the name of the file to remove last, so that an interrupted removal can be repeated.
    """
    top = open_directory(directory)
    try:
        waiting = _empty(".", top, last)
        while waiting:
            folder = waiting.pop()
            with contextlib.suppress(FileNotFoundError):
                waiting += _empty(folder, top)
                os.rmdir(folder, dir_fd=top)
        if last:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(last, dir_fd=top)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(directory)


def _empty(folder: str, top: int, keep: str = "") -> list[str]:
    """Remove a folder's files, and move its subfolders to `top`. Returns their new names."""
    names = []
    handle = open_directory(folder, dir_fd=top)
    try:
        with os.scandir(handle) as entries:
            for entry in list(entries):
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        name = f".removing-{os.urandom(8).hex()}"
                        os.rename(entry.name, name, src_dir_fd=handle, dst_dir_fd=top)
                        names.append(name)
                    elif entry.name != keep:
                        os.unlink(entry.name, dir_fd=handle)
    finally:
        os.close(handle)
    return names

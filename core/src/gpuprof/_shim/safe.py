"""Opens, reads, writes and removes files that may not be ours.

A run's directory may come from somebody else, or be damaged. Nothing here follows a link below a
directory that it was given, waits for a FIFO, or reads without a limit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

LARGEST = 64 * 2**20
"""Bytes of a JSON file. Those of a run are far smaller; only its manifest may be larger."""
LARGEST_HOLES = 2**30
"""The most bytes in holes of a file that is read to its end."""
_MOST_BRACKETS = 2**18
"""Limit of lists and mappings in a JSON file, besides one for each 16 bytes: an empty one has
two bytes, but takes a hundred in memory."""
DEEPEST = 400
"""Levels of nested lists and mappings in a JSON file. Python's parser gives up at about 1,000."""


class UnsafeFile(ValueError):
    """An unusable file: not regular, too large, nested too deeply, or not JSON."""


def open_regular(path: str | os.PathLike[str], dir_fd: int | None = None) -> int:
    """Open a regular file for reading, without following a link.

    Args:
        dir_fd: the directory that `path` is in; by default `path` is used as it is.

    Raises:
        OSError: it is missing or cannot be opened.
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


def _refuse_others(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeFile("a link; expected a regular file")
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile("not a regular file")


def read_bytes(
    path: str | os.PathLike[str], most: int = LARGEST, dir_fd: int | None = None
) -> bytes:
    """Read a regular file of a limited size.

    Raises:
        OSError: it cannot be read.
        UnsafeFile: it is not a regular file, or is larger than `most`.
    """
    with open(open_regular(path, dir_fd), "rb") as file:
        # the size first: a sparse file may have more than memory holds
        content = b"" if os.fstat(file.fileno()).st_size > most else file.read(most + 1)
        if len(content) > most or os.fstat(file.fileno()).st_size > most:
            raise UnsafeFile(f"larger than {most} bytes")
        return content


def load_json(path: str | os.PathLike[str], most: int = LARGEST, dir_fd: int | None = None) -> Any:
    """Parse a JSON file of a limited size and depth.

    Raises:
        OSError: it cannot be read.
        UnsafeFile: as `read_bytes`; or it is not JSON, or nested too deeply.
    """
    return parse_json(read_bytes(path, most, dir_fd))


def parse_json(text: bytes) -> Any:
    """Parse JSON of a limited depth, in memory of up to about 20 times its size.

    Raises:
        UnsafeFile: it is not JSON, is nested too deeply, or has little but lists and mappings.

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
    """Refuse a file with large holes, which take memory but no room on a disk.

    Some are fine: copying a file can turn its zeros into holes.

    Raises:
        UnsafeFile: its holes have more than `LARGEST_HOLES` bytes.
    """
    end, position, holes = os.fstat(handle).st_size, 0, 0
    with contextlib.suppress(OSError):  # a file system that knows no holes
        while position < end and holes <= LARGEST_HOLES:
            begin = os.lseek(handle, position, os.SEEK_HOLE)
            try:
                position = os.lseek(handle, begin, os.SEEK_DATA)
            except OSError:  # the last hole
                position = end
            holes += position - begin
    os.lseek(handle, 0, os.SEEK_SET)
    if holes > LARGEST_HOLES:
        raise UnsafeFile(f"more than {LARGEST_HOLES // 2**20} MiB of it are a hole")


def create(path: str | os.PathLike[str], mode: int = 0o666) -> int:
    """Create a new file for writing.

    Replaces whatever has its name, such as a stale temporary file or a link.

    Raises:
        OSError: it cannot be created.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file under a random temporary name, and rename it once it is whole.

    Replaces a link of the final name, not what it points to. If anything is raised, the file that
    was there stays.

    Raises:
        OSError: it cannot be written.
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
    """Rename a finished file, unless its new name is taken.

    Returns:
        Whether the name was free.

    Raises:
        OSError: the directory cannot be written.
    """
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
    """As `take_name`, for a file that is removed if the name is taken."""
    try:
        return take_name(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def open_directory(path: str | os.PathLike[str], dir_fd: int | None = None) -> int:
    """Open a directory that is not a link.

    Raises:
        OSError: it is missing, is a link or no directory, or cannot be opened.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


def make_directory(path: str) -> None:
    """Make a directory, and those above it, unless it is there.

    Raises:
        OSError: it cannot be made, or is a link.
    """
    os.makedirs(path, exist_ok=True)
    os.close(open_directory(path))


def is_ours(status: os.stat_result) -> bool:
    """Whether this user owns a file and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def regular_files(directory: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """All regular files below a directory, at any depth. Skips what cannot be read."""
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
    """Remove a directory and all below it. Removes links, never what they point to.

    Nested directories are moved up before they are emptied, so any depth can be removed. Two
    processes may remove the same directory at once, and either may be killed: the other finishes.

    Args:
        last: the file to remove last, so that an interrupted removal can be repeated.

    Raises:
        OSError: it is a link, or something in it cannot be removed.
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
    """Remove the files in a folder; move its folders up to `top`. Returns their names there."""
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

"""Caches the ranges of a report beside it, so that it is read only once.

A cached file is for a report of one name and content, read by one release of a backend with the
same settings. Anybody may have written into a run's directory, also files that are this user's and
private once an archive is unpacked. So a cached file ends with a seal: its digest, with a key that
is in this user's home directory and in no run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypedDict

from gpuprof._artifacts import formats
from gpuprof._artifacts.records import CACHE
from gpuprof._report.readers import Reader
from gpuprof._shim.safe import (
    LARGEST,
    UnsafeFile,
    create,
    open_directory,
    open_regular,
    parse_json,
    publish,
    regular_files,
    remove_tree,
    replacing,
)
from gpuprof.backend.types import RangeTimes
from gpuprof.errors import OutputError

_VERSION = 2
_MOST = 2**25
"""Maximum durations in a cached file, at 8 bytes each."""
_BLOCK = 2**20
_SEAL = 32
"""Bytes of a seal, and of the key."""


class _Entry(TypedDict):
    name: str
    parents: list[str]
    device: dict[str, int]
    count: int


class _Header(TypedDict):
    """The first line of a cached file.

    The durations of all ranges follow, as 64-bit integers, then the seal.

    Args:
        size: of the report, in bytes.
        digest: of the report's content.
        reader: who has read it; see `Reader`.
        byteorder: of the durations.
        ranges: each `RangeTimes`, with the number of its durations.
    """

    version: int
    size: int
    digest: str
    reader: str
    byteorder: str
    ranges: list[_Entry]


def read(report: Path, reader: Reader) -> list[RangeTimes] | None:
    """The ranges of a report, from the cache if it has them; ``None`` if another backend's.

    Raises:
        GpuprofError: the backend cannot read the report.
    """
    found = _load(report, reader.identity)
    if found is not None:
        return found
    before = _state(report)
    ranges = reader.read(path=str(report))
    if ranges is not None:
        with contextlib.suppress(OSError, UnsafeFile, OverflowError):  # such as a full disk
            size, digest = _content(report)
            if _state(report) == before:  # else the ranges may be of what was there before
                _store(report, size, digest, reader.identity, ranges)
    return ranges


def remove(run_directory: str) -> int:
    """Remove everything cached in a run's directory, and return its size in bytes.

    Raises:
        OSError: it cannot be removed.
    """
    freed = 0
    for place, folders, _ in os.walk(run_directory):
        cache = os.path.join(place, CACHE)
        if CACHE in folders and not os.path.islink(cache):
            freed += sum(
                entry.stat(follow_symlinks=False).st_size for entry in regular_files(cache)
            )
            remove_tree(cache)
            folders.remove(CACHE)
    return freed


def _load(report: Path, reader: str) -> list[RangeTimes] | None:
    """The cached ranges of a report; ``None`` if they are not to be used."""
    try:
        with _directory(report) as directory:
            handle = open_regular(_name(report), directory)
        with open(handle, "rb") as cached:
            end = _check_seal(cached)
            header = formats.check(report, _mapping(cached.readline(LARGEST)), _Header, _VERSION)
            known = header["reader"], header["byteorder"], header["size"], header["digest"]
            if known != (reader, sys.byteorder, *_content(report)):
                return None
            counts = [entry["count"] for entry in header["ranges"]]
            rest = end - cached.tell()
            if min(counts, default=0) < 0 or sum(counts) > _MOST or 8 * sum(counts) != rest:
                return None
            return [_times(entry, cached) for entry in header["ranges"]]
    # missing, foreign, damaged, or of another release: the caller writes a new one
    except (OSError, EOFError, UnsafeFile, OutputError, ValueError):
        return None


def _times(entry: _Entry, cached: BinaryIO) -> RangeTimes:
    durations = array("q")
    durations.fromfile(cached, entry["count"])
    return RangeTimes(entry["name"], tuple(durations), entry["device"], tuple(entry["parents"]))


def _store(report: Path, size: int, digest: str, reader: str, ranges: Sequence[RangeTimes]) -> None:
    if sum(len(times.durations) for times in ranges) > _MOST:
        return
    header: _Header = {
        "version": _VERSION,
        "size": size,
        "digest": digest,
        "reader": reader,
        "byteorder": sys.byteorder,
        "ranges": [
            {
                "name": times.name,
                "parents": list(times.parents),
                "device": dict(times.device),
                "count": len(times.durations),
            }
            for times in ranges
        ],
    }
    with contextlib.suppress(FileExistsError):
        os.mkdir(report.parent / CACHE, 0o700)
    seal = _new_seal()
    with _directory(report) as directory, replacing(_name(report), 0o600, directory) as file:
        parts = (array("q", times.durations).tobytes() for times in ranges)
        for part in (json.dumps(header).encode() + b"\n", *parts):
            seal.update(part)
            file.write(part)
        file.write(seal.digest())


@contextlib.contextmanager
def _directory(report: Path) -> Iterator[int]:
    """Open the directory beside a report.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    directory = open_directory(report.parent / CACHE)
    try:
        yield directory
    finally:
        os.close(directory)


def _check_seal(cached: BinaryIO) -> int:
    """Read a cached file once, from its beginning and back to it. Returns where its seal begins.

    Raises:
        UnsafeFile: this user has not written it.
    """
    end = os.fstat(cached.fileno()).st_size - _SEAL
    if not 0 <= end <= LARGEST + 8 * _MOST:
        raise UnsafeFile("not the size of a cached file")
    seal = _new_seal()
    while block := cached.read(min(_BLOCK, end - cached.tell())):
        seal.update(block)
    if not hmac.compare_digest(seal.digest(), cached.read(_SEAL)):
        raise UnsafeFile("not sealed by this user")
    cached.seek(0)
    return end


def _new_seal() -> hashlib.blake2b:
    return hashlib.blake2b(key=_key(), digest_size=_SEAL)


def _key() -> bytes:
    """This user's key, made when it is first needed.

    Raises:
        OSError: it cannot be made or read.
        UnsafeFile: it is not a key, or somebody else can read it.
    """
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = os.path.join(home, "gpuprof", "key")
    if not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        own = f"{path}.{secrets.token_hex(8)}.tmp"
        with open(create(own, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_SEAL))
        publish(own, path)  # of two processes, one is first
    with open(open_regular(path), "rb") as file:
        status = os.fstat(file.fileno())
        key = file.read(_SEAL + 1)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or len(key) != _SEAL:
        raise UnsafeFile("not a private key of this user")
    return key


def _name(report: Path) -> str:
    """The name of a report's cached file: short, however long the report's is."""
    return hashlib.blake2b(os.fsencode(report.name), digest_size=16).hexdigest() + ".ranges"


def _content(report: Path) -> tuple[int, str]:
    """A report's size and the digest of all of it."""
    digest = hashlib.blake2b(digest_size=16)
    size = 0
    with open(open_regular(report), "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def _state(report: Path) -> tuple[int, ...]:
    status = os.stat(report)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _mapping(text: bytes) -> dict[str, object]:
    data = parse_json(text)
    if not isinstance(data, dict):
        raise UnsafeFile("not a mapping")
    return data

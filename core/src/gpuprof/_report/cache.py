"""Caches the ranges of reports in this user's home directory, so that each is read only once.

The cache is not next to the reports, because the files in a run directory may come from anybody.
Even files that are private and belong to this user may have come out of an unpacked archive.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

import attrs

from gpuprof._report.readers import Reader
from gpuprof._shim.safe import UnsafeFile, open_regular, replacing
from gpuprof.backend.types import RangeTimes

_MOST = 2**25
"""Most durations of a report whose ranges are cached. Each takes about 10 bytes."""
_KEPT = 30 * 86400.0
"""Seconds to keep a cached file after its last use."""
_BLOCK = 2**20


def read(report: Path, reader: Reader) -> list[RangeTimes] | None:
    """A report's ranges, from the cache if possible; ``None`` if the backend cannot read it."""
    try:
        cache_file = directory() / f"{_digest(report)}-{reader.identity}.json"
    except (OSError, UnsafeFile):  # such as a link: leave it to the backend
        return reader.read(path=str(report))
    # missing, or not what this release writes
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        entries = json.loads(cache_file.read_bytes())
        os.utime(cache_file)
        return [RangeTimes(**{**entry, "parents": tuple(entry["parents"])}) for entry in entries]
    before = _state(report)
    ranges = reader.read(path=str(report))
    if ranges is None or _state(report) != before:  # the report may have changed while it was read
        return ranges
    if sum(len(times.durations) for times in ranges) <= _MOST:
        with contextlib.suppress(OSError):  # such as a full disk
            cache_file.parent.mkdir(0o700, parents=True, exist_ok=True)
            with replacing(cache_file, 0o600) as file:
                file.write(json.dumps([attrs.asdict(times) for times in ranges]).encode())
            remove(_KEPT)
    return ranges


def directory() -> Path:
    """The directory of this user's cached files."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "gpuprof", "ranges")


def remove(unused: float = 0.0) -> int:
    """Remove cached files, and return their size in bytes.

    Args:
        unused: remove only files whose last use was at least so many seconds ago.
    """
    total = 0
    for file in directory().glob("*.json"):
        status = file.stat()
        if status.st_mtime <= time.time() - unused:
            file.unlink()
            total += status.st_size
    return total


def _digest(report: Path) -> str:
    """A digest of a report's content and name; a backend may recognize a report by its name."""
    digest = hashlib.blake2b(os.fsencode(report.name) + b"\0", digest_size=16)
    with open(open_regular(report), "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _state(report: Path) -> tuple[int, ...]:
    status = os.stat(report)
    return status.st_ino, status.st_size, status.st_mtime_ns

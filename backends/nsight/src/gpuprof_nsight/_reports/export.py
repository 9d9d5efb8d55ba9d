"""Exports reports to SQLite with nsys."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprof.errors import GpuprofError, ToolError

from gpuprof_nsight._nsys import find

_DEADLINE = 3600.0


class ReportError(GpuprofError):
    """A report cannot be read: truncated, not a report, or written by a newer nsys."""


def export(report: str | os.PathLike[str], executable: str = "nsys") -> Path:
    """Export a report to SQLite, or return the cached export of the same content.

    The cache is a hidden file beside the report, or in the system's temporary directory if that one
    is read-only. Only this user can read it, and only this user's is trusted.

    Args:
        executable: an nsys at least as new as the one that wrote the report.

    Raises:
        ReportError: the report is incomplete or too new; the message quotes nsys.
        ToolError: nsys is not installed, or there is no `executable`.
    """
    path = Path(report)
    try:
        digest = _digest(path)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None
    name = f".{path.name}.{digest}.sqlite"
    cached_copy = next((place / name for place in _places(path) if _is_own(place / name)), None)
    # a cached export needs no nsys, but an nsys that was asked for and is missing is a mistake
    if cached_copy is not None and (executable == "nsys" or find.locate(executable) is not None):
        return cached_copy
    with exported(path, executable) as copy:
        # Rename when complete, so that a concurrent reader never sees a partial file.
        return copy.replace(copy.parent.parent / name)


@contextmanager
def exported(report: str | os.PathLike[str], executable: str = "nsys") -> Iterator[Path]:
    """Export a report to a SQLite file that only this user can read, and remove it in the end.

    Raises:
        ReportError: as `export`.
        ToolError: as `export`.
    """
    nsys = find.locate(executable)
    if nsys is None:
        raise ToolError(find.missing(executable))
    path = Path(report)
    beside, everywhere = _places(path)
    place = beside if os.access(beside, os.W_OK) else everywhere
    with tempfile.TemporaryDirectory(prefix=".gpuprof-", dir=place) as directory:
        copy = Path(directory, "report.sqlite")
        command = [nsys, "export", "-t", "sqlite", "-o", str(copy), str(path)]
        try:
            process = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_DEADLINE,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReportError(f"{path}: {error}") from None
        if process.returncode or not copy.exists():
            raise ReportError(
                f"{path} cannot be read by {nsys}: {_reason(process.stdout + process.stderr)}"
            )
        copy.chmod(0o600)  # the report may say more than its copy may tell others
        yield copy


def _places(report: Path) -> list[Path]:
    """Where an export may lie: beside the report, else where every user can write."""
    return [report.parent, Path(tempfile.gettempdir())]


def _is_own(copy: Path) -> bool:
    """Whether this user has made a copy: in a temporary directory anybody can, with any content."""
    try:
        status = copy.lstat()
    except OSError:
        return False
    private = not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and private


def _digest(path: Path) -> str:
    # hashlib.file_digest is newer than Python 3.10.
    digest = hashlib.blake2b()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.replace("\r", "\n").splitlines() if line.strip()]
    words = [line for line in lines if not line.startswith(("Processing", "Exporting", "[", "/"))]
    return " ".join(words[:3]) or "nsys gave no reason"

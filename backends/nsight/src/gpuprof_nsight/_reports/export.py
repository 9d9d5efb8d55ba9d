"""Exporting reports to SQLite with nsys itself, kept beside the report."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from gpuprof.errors import GpuprofError, ToolError

from gpuprof_nsight._nsys import find

_DEADLINE = 3600.0


class ReportError(GpuprofError):
    """A report cannot be read: truncated, not a report, or written by a newer nsys."""


def export(report: str | os.PathLike[str], executable: str = "nsys") -> Path:
    """Export a report to an SQLite file, once for each content.

    The file is hidden beside the report; if that directory is read-only, it is in the system's
    temporary directory.

    Args:
        executable: an nsys at least as new as the one that wrote the report.

    Raises:
        ReportError: the report is incomplete or too new; in nsys's own words.
        ToolError: nsys is not installed.
    """
    path = Path(report)
    try:
        digest = _digest(path)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None
    name = f".{path.name}.{digest}.sqlite"
    places = [path.parent, Path(tempfile.gettempdir())]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is not None:
        return found
    nsys = find.locate(executable)
    if nsys is None:
        raise ToolError(find.missing(executable))
    place = next(place for place in places if os.access(place, os.W_OK) or place is places[-1])
    # Renamed when complete: a second reader never sees half a file.
    with tempfile.TemporaryDirectory(prefix=".gpuprof-", dir=place) as directory:
        made = Path(directory, "report.sqlite")
        command = [nsys, "export", "-t", "sqlite", "-o", str(made), str(path)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_DEADLINE,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReportError(f"{path}: {error}") from None
        if done.returncode or not made.exists():
            raise ReportError(
                f"{path} cannot be read by {nsys}: {_words(done.stdout + done.stderr)}"
            )
        return made.replace(place / name)


def _digest(path: Path) -> str:
    # hashlib.file_digest is newer than Python 3.10.
    digest = hashlib.blake2b()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def _words(said: str) -> str:
    lines = [line.strip() for line in said.replace("\r", "\n").splitlines() if line.strip()]
    words = [line for line in lines if not line.startswith(("Processing", "Exporting", "[", "/"))]
    return " ".join(words[:3]) or "no reason given"

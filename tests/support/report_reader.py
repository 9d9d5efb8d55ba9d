"""Reads the NVTX ranges out of a report."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

_RANGES = """
    SELECT coalesce(event.text, string.value) FROM NVTX_EVENTS AS event
    LEFT JOIN StringIds AS string ON string.id = event.textId
    WHERE event.eventType IN (59, 60)
"""


class NoRanges(AssertionError):
    """A whole report without any range: nsys loses those of a few processes of a hundred."""


def labels(report: str | None) -> Counter[str]:
    """How often each label occurs in a report.

    Exported by nsys itself, which refuses what is not a whole report.

    Raises:
        NoRanges: none does.
    """
    assert report is not None
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory) / "report.sqlite"
        command = ["nsys", "export", "-t", "sqlite", "-f", "true", "-o", str(database), report]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            if not connection.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'NVTX_EVENTS'"
            ).fetchall():
                raise NoRanges(report)
            found = Counter(label for (label,) in connection.execute(_RANGES))
    if not found:
        raise NoRanges(report)
    return found

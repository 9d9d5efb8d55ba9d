"""Reading a report: its ranges, and all that it recorded.

The tables of ``nsys export`` are documented in the "SQLite Schema Reference" of the Nsight Systems
user guide. The CUDA tables exist only if CUDA was traced. Times are nanoseconds since the session
began.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from gpuprof.backend import RangeTimes, RecordedTrack

from gpuprof_nsight._reports import device
from gpuprof_nsight._reports.export import ReportError, export
from gpuprof_nsight._reports.nesting import nested_times
from gpuprof_nsight._reports.spans import recorded_tracks

_PUSH_POP, _START_END, _DOMAIN = 59, 60, 75  # NVTX_EVENTS.eventType
_PROCESS = "CAST(({column} >> 24) & 0xFFFFFF AS INTEGER)"
_THREAD = "CAST({column} & 0xFFFFFF AS INTEGER)"
_DOMAINS = f"""
    SELECT domainId, globalTid >> 24 AS owner, max(text) AS text FROM NVTX_EVENTS
    WHERE eventType = {_DOMAIN} GROUP BY domainId, owner
"""
_RANGES = f"""
    SELECT coalesce(event.text, string.value, '') AS name, coalesce(domain.text, '') AS domain,
           event.start AS start, event.end AS end,
           {_PROCESS.format(column="event.globalTid")} AS process,
           {_THREAD.format(column="event.globalTid")} AS thread
    FROM NVTX_EVENTS AS event
    LEFT JOIN StringIds AS string ON string.id = event.textId
    LEFT JOIN ({_DOMAINS}) AS domain
      ON domain.domainId = event.domainId AND domain.owner = event.globalTid >> 24
    WHERE event.eventType IN ({_PUSH_POP}, {_START_END}) AND event.end IS NOT NULL
"""
# Fetching the rows takes most of the time, so there are few columns and no joins: the name may be a
# string's number, and the thread of a started range is negative.
_NESTING = f"""
    SELECT start, end, CASE eventType WHEN {_START_END} THEN -globalTid ELSE globalTid END,
           coalesce(text, textId, '')
    FROM NVTX_EVENTS
    WHERE eventType IN ({_PUSH_POP}, {_START_END}) AND end IS NOT NULL AND ({{condition}})
    {{order}}
"""
_STRING = "SELECT value FROM StringIds WHERE id = ?"


@attrs.frozen
class Range:
    """One NVTX range.

    `start` and `end` in nanoseconds since the session began; `process` and `thread` are system ids.
    """

    name: str
    domain: str
    start: int
    end: int
    process: int
    thread: int


class Report:
    """An nsys report. Rows are read one by one, so a long report need not fit into memory.

    Args:
        database: the report as SQLite, from `export`.
    """

    def __init__(self, database: Path) -> None:
        self._database = database

    def ranges(self, domain: str | None = None) -> Iterator[Range]:
        """The finished ranges, by start; only those of `domain` if given."""
        if "NVTX_EVENTS" not in self._tables():  # absent without ranges
            return
        for name, of, start, end, process, thread in self._rows(f"{_RANGES} ORDER BY event.start"):
            if domain is None or of == domain:
                yield Range(name, of, start, end, process, thread)

    def range_times(self, domain: str) -> list[RangeTimes]:
        """The durations of a domain's ranges by name and nesting, with their calls' GPU time.

        GPU work belongs to the CUDA call that launched it, and that call to all ranges of its
        thread that were open when it began.
        """
        tables = self._tables()
        if "NVTX_EVENTS" not in tables:
            return []
        condition = self._is_of(domain)

        def times(in_order: bool) -> list[RangeTimes]:
            order = "ORDER BY start, end DESC, rowid" if in_order else ""
            calls = device.query(tables, in_order)
            return nested_times(
                self._rows(_NESTING.format(condition=condition, order=order)),
                self._rows(calls) if calls else None,
                lambda number: next(self._rows(_STRING, number), ("",))[0],
            )

        # nsys exports rows in order of time, but does not promise it; sorting them takes long
        try:
            return times(in_order=False)
        except device.OutOfOrder:
            return times(in_order=True)

    def recorded_tracks(self, domain: str, hidden: str) -> list[RecordedTrack]:
        """All that it recorded: ranges of every domain but `hidden`, calls, and the GPU's work.

        Raises:
            ReportError: it does not say when it began.
        """
        tracks = recorded_tracks(self._rows, self._tables(), domain, hidden)
        if tracks is None:
            raise ReportError(f"{self._database}: the time at which the session began is missing")
        return tracks

    def _is_of(self, domain: str) -> str:
        """The condition for an event of a domain. A process's numbers of domains are its own."""
        owners: dict[int, list[str]] = {}
        for number, owner, text in self._rows(_DOMAINS):
            if text == domain or (not domain and text):
                owners.setdefault(number, []).append(str(owner))
        conditions = [
            f"domainId = {number} AND globalTid >> 24 IN ({', '.join(processes)})"
            for number, processes in owners.items()
        ]
        condition = " OR ".join(conditions) or "0"
        return condition if domain else f"NOT coalesce({condition}, 0)"

    def _tables(self) -> set[str]:
        return {
            name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        }

    def _rows(self, query: str, *values: object) -> Iterator[Any]:
        try:
            with contextlib.closing(
                sqlite3.connect(f"{Path(self._database).absolute().as_uri()}?mode=ro", uri=True)
            ) as connection:
                yield from connection.execute(query, values)
        except sqlite3.Error as error:
            raise ReportError(f"{self._database}: {error}") from None


def read(report: str | os.PathLike[str], executable: str = "nsys") -> Report:
    """Open a report.

    Args:
        report: an ``.nsys-rep`` file.
        executable: an nsys at least as new as the one that wrote the report.

    Raises:
        ReportError: the report is incomplete or too new.
        ToolError: nsys is not installed.
    """
    return Report(export(report, executable))

"""The GPU time of the calls inside ranges, summed up in one pass in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

TABLES = {
    "kernels": "CUPTI_ACTIVITY_KIND_KERNEL",
    "copies": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memsets": "CUPTI_ACTIVITY_KIND_MEMSET",
    "graphs": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "synchronization": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
}
"""The kinds of GPU work, with their tables. A report has those tables that have rows.

nsys 2022.4 and 2023.4 have no table of graphs: they record the kernels of a graph one by one.
"""
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
# The lookup table of calls' work is SQLite's own: it keeps what is too large for memory on disk.
_QUERY = """
    WITH work AS MATERIALIZED ({work})
    SELECT call.start, call.globalTid, work.kind, work.time
    FROM (SELECT start, globalTid, correlationId, globalTid >> 24 AS process FROM {calls}) AS call
    CROSS JOIN work ON work.correlationId = call.correlationId AND work.process = call.process
    {order}
"""
_WORK = """
    SELECT {kind} AS kind, correlationId, globalPid >> 24 AS process, end - start AS time
    FROM {table}
"""
_NEVER = (float("inf"), 0, 0, 0)

Call = tuple[float, int, int, int]
"""When a CUDA call began, its thread, and the kind and nanoseconds of a piece of its work."""


class OutOfOrder(ValueError):
    """Rows that are not in order of time."""


def query(tables: set[str], in_order: bool) -> str | None:
    """Selects each piece of GPU work as a `Call`; ``None`` if there is no such table.

    Args:
        in_order: whether to sort the calls by time.
    """
    work = [
        _WORK.format(kind=kind, table=table)
        for kind, table in enumerate(TABLES.values())
        if table in tables
    ]
    if not work or _CALLS not in tables:
        return None
    order = "ORDER BY call.start" if in_order else ""
    return _QUERY.format(work=" UNION ALL ".join(work), calls=_CALLS, order=order)


class DeviceTime:
    """Adds the GPU time of calls to the ranges that were open in their thread when they began.

    Each thread has a running total. A range's time is what the total grew by while the range was
    open, so it costs the same however many calls and ranges are inside. Only open ranges are held.

    Args:
        calls: the GPU work, by the start of its call.

    Raises:
        OutOfOrder: by any method, if the calls are not in that order.
    """

    def __init__(self, calls: Iterator[Call]) -> None:
        self._calls = calls
        self._next = next(calls, _NEVER)
        self._totals: dict[int, list[int]] = {}
        self._open: list[tuple[int, int, list[int], list[int], list[int]]] = []
        self._count = 0

    def begin(self, start: int, end: int, thread: int, sums: list[int]) -> None:
        """Begin a range. Ranges begin in order of time.

        Args:
            sums: nanoseconds by kind; gets the range's once the range has ended.
        """
        self._pass_time(start)
        totals = self._totals.setdefault(thread, [0] * len(TABLES))
        self._count += 1  # tells ranges with the same end apart
        heapq.heappush(self._open, (end, self._count, totals, totals.copy(), sums))

    def finish(self) -> None:
        """Read the remaining calls and end all ranges."""
        self._pass_time(_NEVER[0])

    def _pass_time(self, until: float) -> None:
        """Count the calls that began before `until`, and end the ranges that ended by then."""
        while self._next[0] < until:
            start, thread, kind, time = self._next
            self._end_ranges(start)
            if thread in self._totals:
                self._totals[thread][kind] += time
            self._next = next(self._calls, _NEVER)
            if self._next[0] < start:
                raise OutOfOrder
        self._end_ranges(until)

    def _end_ranges(self, until: float) -> None:
        while self._open and self._open[0][0] <= until:
            _, _, totals, before, sums = heapq.heappop(self._open)
            for kind, total in enumerate(totals):
                sums[kind] += total - before[kind]

"""All that a report recorded, span by span, by the wall clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpuprof.backend import RecordedTrack

_START = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"
_DOMAINS = """
    SELECT domainId, globalTid >> 24, max(text) FROM NVTX_EVENTS WHERE eventType = 75
    GROUP BY domainId, globalTid >> 24
"""
# 59 and 60 are pushed and started ranges
_RANGES = """
    SELECT coalesce(text, textId, ''), start, end, globalTid, domainId FROM NVTX_EVENTS
    WHERE eventType IN (59, 60) AND end IS NOT NULL
"""
_CALLS = {"CUDA calls": "CUPTI_ACTIVITY_KIND_RUNTIME", "OS runtime": "OSRT_API"}
_COPIES = "CASE copyKind WHEN 1 THEN 'copy host to device' WHEN 2 THEN 'copy device to host' "
_COPIES += "WHEN 8 THEN 'copy device to device' WHEN 10 THEN 'copy peer to peer' ELSE 'copy' END"
_DEVICE = {
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL", "coalesce(shortName, demangledName)"),
    "copies": ("CUPTI_ACTIVITY_KIND_MEMCPY", _COPIES),
    "memsets": ("CUPTI_ACTIVITY_KIND_MEMSET", "'memset'"),
}

Rows = Callable[[str], Iterator[Any]]


def recorded_tracks(
    rows: Rows, tables: set[str], domain: str, hidden: str
) -> list[RecordedTrack] | None:
    """Read the ranges, calls of CUDA and of the system's libraries, and the GPU's work.

    Args:
        rows: runs a query.
        domain: the domain of gpuprof's own ranges.
        hidden: a domain whose ranges are left out.

    Returns:
        ``None`` if the report does not say when it began.
    """
    origin = next(rows(_START), (None,))[0] if "TARGET_INFO_SESSION_START_TIME" in tables else None
    if origin is None:
        return None
    strings = dict(rows("SELECT id, value FROM StringIds")) if "StringIds" in tables else {}
    threads: dict[int, str] = {}
    if "ThreadNames" in tables:
        for thread, name in rows("SELECT globalTid, nameId FROM ThreadNames"):
            threads[thread] = strings.get(name, "")
    spans_by_track: dict[tuple[str, int, int, str], list[tuple[str, int, int]]] = {}

    def add(kind: str, where: tuple[int, int, str], name: object, start: int, end: int) -> None:
        text = name if isinstance(name, str) else strings.get(name, "")
        spans_by_track.setdefault((kind, *where), []).append((text, origin + start, origin + end))

    def thread_of(number: int) -> tuple[int, int, str]:
        return number >> 24 & 0xFFFFFF, number & 0xFFFFFF, threads.get(number, "")

    if "NVTX_EVENTS" in tables:
        domains = {(number, owner): text for number, owner, text in rows(_DOMAINS)}
        for name, start, end, thread, number in rows(_RANGES):
            of = domains.get((number, thread >> 24))
            if of != hidden:
                kind = "ranges" if of == domain else f"NVTX {of or 'ranges'}"
                add(kind, thread_of(thread), name, start, end)
    for kind, table in _CALLS.items():
        if table in tables:
            query = f"SELECT nameId, start, end, globalTid FROM {table} WHERE end > start"
            for name, start, end, thread in rows(query):
                add(kind, thread_of(thread), name, start, end)
    for kind, (table, label) in _DEVICE.items():
        if table in tables:
            query = f"SELECT {label}, start, end, deviceId, streamId FROM {table}"
            for name, start, end, device, stream in rows(query):
                add(kind, (0, 0, f"GPU {device}, stream {stream}"), name, start, end)
    return [
        RecordedTrack(kind, spans, process, thread, name)
        for (kind, process, thread, name), spans in spans_by_track.items()
    ]

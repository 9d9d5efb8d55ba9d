"""What a finished trace holds.

A Chrome trace has microseconds, with fractions, since a time that it names.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from gpuprof.backend import RecordedTrack

_THREADS = {
    "user_annotation": "ranges",
    "schedule": "schedule",
    "cpu_op": "operators",
    "python_function": "Python",
    "cuda_runtime": "CUDA calls",
    "cuda_driver": "CUDA calls",
}
_DEVICES = {"kernel": "kernels", "gpu_memcpy": "copies", "gpu_memset": "memsets"}
"""The categories of torch, and what they are called on a timeline."""


def read_tracks(path: str) -> list[RecordedTrack]:
    """Ranges, operators and calls by thread, and the work of each GPU by stream."""
    trace = _load(path)
    zero = trace["baseTimeNanoseconds"]
    found: dict[tuple[str, int, int, str], list[tuple[str, int, int]]] = {}
    for event in trace["traceEvents"]:
        category = event.get("cat")
        if event.get("ph") != "X":
            continue
        if event["name"].startswith("ProfilerStep#"):  # torch's own, of a schedule
            category = "schedule"
        if category in _THREADS:
            where = _THREADS[category], event["pid"], event["tid"], ""
        elif category in _DEVICES:
            where = _DEVICES[category], 0, 0, f"GPU {event['pid']}, stream {event['tid']}"
        else:
            continue
        label = unquote(event["name"]) if category == "user_annotation" else event["name"]
        start = zero + _nanoseconds(event["ts"])
        found.setdefault(where, []).append((label, start, start + _nanoseconds(event["dur"])))
    return [
        RecordedTrack(kind, spans, process, thread, name)
        for (kind, process, thread, name), spans in found.items()
    ]


def _load(path: str) -> Any:
    with open(path) as file:
        return json.load(file)


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)

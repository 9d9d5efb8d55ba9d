"""The ranges in a finished trace."""

from __future__ import annotations

import json

from gpuprof.backend import RangeTimes


def read(path: str) -> list[RangeTimes]:
    """Every range, in the order of its first appearance.

    A Chrome trace has microseconds, with fractions.
    """
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    durations: dict[str, list[int]] = {}
    for event in events:
        if event.get("cat") == "user_annotation" and event.get("ph") == "X":
            durations.setdefault(event["name"], []).append(round(event["dur"] * 1000))
    return [RangeTimes(name, tuple(found)) for name, found in durations.items()]

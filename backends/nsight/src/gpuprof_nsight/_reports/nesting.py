"""How ranges nest, found in one pass in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
from gpuprof.backend import RangeTimes

from gpuprof_nsight._reports.device import TABLES, Call, DeviceTime, OutOfOrder

_FOREVER = float("inf")

Begun = tuple[int, int, int, "int | str"]
"""A range's start and end, its thread, and its name or the name's number.

The thread of a started range is negative.
"""


@attrs.define(eq=False)
class _Place:
    """The ranges of one name at one place of the nesting.

    Args:
        path: names, from the outermost range inwards.
        device: nanoseconds by kind.
        inside: the places inside, by name, and also by the name's number.
    """

    path: tuple[str, ...]
    durations: list[int] = attrs.field(factory=list)
    device: list[int] = attrs.field(factory=lambda: [0] * len(TABLES))
    inside: dict[int | str, _Place] = attrs.field(factory=dict)


def nested_times(
    ranges: Iterator[Begun], calls: Iterator[Call] | None, text: Callable[[int], str]
) -> list[RangeTimes]:
    """Sum up ranges by name and nesting, with the GPU time of their calls.

    Only pushed ranges hold others: NVTX pops them in order, and so they nest in their thread.
    Started ranges, such as those of asyncio tasks, may overlap anything.

    Args:
        ranges: by start, the longer ones first.
        calls: pieces of GPU work by the start of their call, if any was recorded.
        text: the name of a number.

    Raises:
        OutOfOrder: the ranges or the calls are not in that order.
    """
    root = _Place(())
    places: list[_Place] = []
    threads: dict[int, tuple[list[float], list[_Place]]] = {}
    device = DeviceTime(calls) if calls is not None else None
    latest = 0
    last_start, last_end = -_FOREVER, _FOREVER
    # A report can have millions of ranges, so the loop looks up as little as it can.
    for start, end, signed_thread, name in ranges:
        if start <= last_start and (start < last_start or end > last_end):
            raise OutOfOrder
        last_start, last_end = start, end
        if signed_thread != latest:
            latest, thread = signed_thread, abs(signed_thread)
            ends, around = threads.setdefault(thread, ([_FOREVER], [root]))
        while ends[-1] <= start:
            ends.pop()
            around.pop()
        parent = around[-1]
        if ends[-1] < end:  # a started range that outlives what it began in
            parent = next(
                place
                for until, place in zip(reversed(ends), reversed(around), strict=True)
                if until >= end
            )
        place = parent.inside.get(name)
        if place is None:
            key = text(name) if isinstance(name, int) else name
            if key not in parent.inside:
                parent.inside[key] = _Place((*parent.path, key))
                places.append(parent.inside[key])
            place = parent.inside[name] = parent.inside[key]
        place.durations.append(end - start)
        if signed_thread > 0:
            ends.append(end)
            around.append(place)
        if device is not None:
            device.begin(start, end, thread, place.device)
    if device is not None:
        device.finish()
    return [
        RangeTimes(
            place.path[-1],
            tuple(place.durations),
            {kind: time for kind, time in zip(TABLES, place.device, strict=True) if time},
            place.path[:-1],
        )
        for place in places
    ]

"""What experience has taught to look for in the plan of a whole job. What is a matter of one tool, its backend says itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from gpuprof._config import Config
from gpuprof._plan import PlannedWorker
from gpuprof._selection import matches
from gpuprof._workers import Place

MANY_REPORTS = 500


def advice(config: Config, places: Sequence[Place], rows: Sequence[PlannedWorker]) -> list[str]:
    """Sentences for the user, in the order of their weight."""
    if not config.enabled:
        return list(config.source.notes)
    groups = list(dict.fromkeys(place.group for place in places))
    return [
        *config.source.notes,
        *_unmatched(config, groups),
        *_channels(config, groups),
        *_no_rank(config, groups, rows),
        *_guessed(places, rows),
        *_many(rows),
    ]


def _unmatched(config: Config, groups: list[str]) -> Iterator[str]:
    if not config.worker_groups:
        yield f"{config.where('worker_groups')}: selects no group, so nothing is profiled"
    keys = [("worker_groups", pattern) for pattern in config.worker_groups or ()]
    for key, pattern in [*keys, *(("groups", pattern) for pattern in config.groups)]:
        if pattern in config.source.workers:
            continue  # a group that the system is known to have, here or not
        if groups and not any(matches(group, (pattern,)) for group in groups):
            close = difflib.get_close_matches(pattern.lower(), {group.lower(): group for group in groups}, n=1, cutoff=0.5)
            nearest = next((group for group in groups if close and group.lower() == close[0]), None)
            hint = f"; the nearest name is {nearest}" if nearest else ""
            yield f"{config.where(key)}: {pattern!r} matches none of {', '.join(groups)}{hint}"


def _channels(config: Config, groups: list[str]) -> Iterator[str]:
    """RLinf's channels are worker groups of their own: `Actor` is the one that `ActorGroup` listens to."""
    for group in groups:
        channel = group[: -len("Group")]
        if not group.endswith("Group") or channel not in groups:
            continue
        if matches(group, config.worker_groups) and not matches(channel, config.worker_groups):
            yield f"{config.where('worker_groups')}: {group} is selected, its channel {channel} is not; name it too for its side"


def _no_rank(config: Config, groups: list[str], rows: Sequence[PlannedWorker]) -> Iterator[str]:
    for group in groups:
        mine = [row for row in rows if row.worker.group == group]
        if matches(group, config.worker_groups) and not any(row.profiled for row in mine):
            yield f"{group}: is selected, but no rank of it is profiled: {mine[0].reason}"


def _guessed(places: Sequence[Place], rows: Sequence[PlannedWorker]) -> Iterator[str]:
    unknown = {
        place.group: None for place, row in zip(places, rows, strict=True) if row.profiled and row.wrapped and place.gpus is None
    }
    if unknown:
        names = ", ".join(unknown)
        yield f"{names}: planned as without a GPU, for nobody said; with one the command may be another (workers: NAME=RANKS:GPUS)"


def _many(rows: Sequence[PlannedWorker]) -> Iterator[str]:
    reports = sum(len(row.distinct_files or row.worker.windows) for row in rows if row.profiled)
    if reports > MANY_REPORTS:
        yield f"{reports} reports are planned; fewer ranks or steps keep them readable"

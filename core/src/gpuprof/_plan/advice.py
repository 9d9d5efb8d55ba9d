"""Warnings about the plan of a whole job.

Backends warn about their own tools.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from gpuprof._config.schema import RECORDING_KEYS, Config, Selection
from gpuprof._config.selection import matches
from gpuprof._plan.groups import Place
from gpuprof._plan.worker import PlannedWorker

MANY_REPORTS = 500
MANY_STEPS = 100
_MISSPELT = 0.8
"""Similarity to another name from which a group's name counts as misspelt.

Names that are merely related, such as ``Actor`` and ``ActorGroup``, are less similar.
"""


def advice(
    config: Config,
    places: Sequence[Place],
    rows: Sequence[PlannedWorker],
    are_given: bool,
    launcher: str | None = None,
) -> list[str]:
    """Notes for the user, the most important first.

    Args:
        are_given: whether the user named the workers, and not only the configuration.
        launcher: what starts the workers: ``run`` or ``ray``; ``None`` if unknown.
    """
    if not config.enabled:
        return list(config.source.notes)
    groups = list(dict.fromkeys(place.group for place in places))
    return [
        *config.source.notes,
        *_nobody(config, groups),
        *_unmatched(config, groups, are_given),
        *_channels(config, groups),
        *_no_rank(config, groups, rows),
        *_guessed(places, rows, launcher),
        *_same_names(rows),
        *_many(rows),
        *_long(config, rows),
    ]


def oversights(config: Config, rows: Sequence[PlannedWorker]) -> list[str]:
    """Warnings about groups and ranks that the configuration selects but the running job lacks."""
    if not config.enabled:
        return []
    groups = list(dict.fromkeys(row.worker.group for row in rows))
    wanted_groups = [group for group in groups if not _none_is_meant(config.selection(group))]
    return [*_unmatched(config, groups, True), *_no_rank(config, wanted_groups, rows)]


def _none_is_meant(selection: Selection) -> bool:
    """Whether the selection is empty on purpose: ranks or nodes are null, or steps are empty."""
    no_steps = selection.steps is not None and not selection.steps.ranges
    return no_steps or selection.ranks is None or selection.nodes is None


def _nobody(config: Config, groups: list[str]) -> Iterator[str]:
    if not groups and config.worker_groups:
        yield (
            f"{config.where('worker_groups')}: {', '.join(config.worker_groups)} names no worker "
            "by itself; give workers: NAME=RANKS"
        )


def _unmatched(config: Config, groups: list[str], are_given: bool) -> Iterator[str]:
    if not config.worker_groups:
        what = "not set" if config.worker_groups is None else "selects no group"
        run = (
            " (gpuprof run selects each process's own group where the key is left out: gpuprof "
            "plan --for run)"
        )
        yield (
            f"{config.where('worker_groups')}: {what}, so nothing is "
            f"{'recorded' if config.backend == 'none' else 'profiled'}; name groups, or all"
            + ("" if config.source.workers else run)
        )
    system_groups = [group for group in groups if group in config.source.workers]
    keys = [("worker_groups", pattern) for pattern in config.worker_groups or ()]
    overrides = [
        ("groups", key_of_group)
        for key_of_group in config.groups
        if key_of_group not in _renaming(config)
    ]
    for key, pattern in [*keys, *overrides]:
        if pattern in config.source.workers:
            continue  # a known group of the system, whether this job has it or not
        if not are_given and not config.source.complete:
            if not any(matches(group, (pattern,)) for group in groups):
                yield (
                    f"{config.where(key)}: gpuprof knows no group for {pattern!r}; to check it, "
                    "give the job's groups in workers"
                )
            continue
        # A name found only in the configuration is a group of the user's own, or is misspelt.
        own = not are_given and bool(system_groups) and pattern in groups
        candidates = system_groups if own else groups
        if not candidates or any(matches(group, (pattern,)) for group in candidates):
            continue
        cutoff = _MISSPELT if own else 0.5
        nearest = _nearest(pattern, candidates, cutoff)
        if nearest or not own:
            yield f"{config.where(key)}: {_matches_none(pattern, candidates, nearest)}"


def unmatched_names(config: Config, names: Sequence[str]) -> list[str]:
    """Warnings about entries of `groups` for a class that the Ray job lacks."""
    return [
        f"{config.where('groups')}: {_matches_none(pattern, names, _nearest(pattern, names, 0.5))}"
        for pattern in _renaming(config)
        if names and not any(matches(name, (pattern,)) for name in names)
    ]


def _renaming(config: Config) -> list[str]:
    """The entries of `groups` that rename or leave out classes."""
    return [
        pattern
        for pattern, override in config.groups.items()
        if any(key in (override or {}) for key in RECORDING_KEYS)
    ]


def _nearest(pattern: str, names: Sequence[str], cutoff: float) -> str | None:
    lower = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(pattern.lower(), list(lower), n=1, cutoff=cutoff)
    return lower[close[0]] if close else None


def _matches_none(pattern: str, names: Sequence[str], nearest: str | None) -> str:
    hint = f"; did you mean {nearest!r}?" if nearest else ""
    return f"{pattern!r} matches none of {', '.join(names)}{hint}"


def _channels(config: Config, groups: list[str]) -> Iterator[str]:
    """RLinf's channels are worker groups too: `Actor` is the channel of `ActorGroup`."""
    for group in groups:
        channel = group[: -len("Group")]
        if not group.endswith("Group") or channel not in groups:
            continue
        if matches(group, config.worker_groups) and not matches(channel, config.worker_groups):
            yield (
                f"{config.where('worker_groups')}: {group} is selected, but its channel "
                f"{channel} is not; add {channel} to profile both sides"
            )


def _no_rank(config: Config, groups: list[str], rows: Sequence[PlannedWorker]) -> Iterator[str]:
    if config.backend == "none":  # no rank is profiled, on purpose
        return
    for group in groups:
        rows_of_group = [row for row in rows if row.worker.group == group]
        if matches(group, config.worker_groups) and not any(row.profiled for row in rows_of_group):
            yield f"{group}: selected, but none of its ranks is profiled: {rows_of_group[0].reason}"


def _guessed(
    places: Sequence[Place], rows: Sequence[PlannedWorker], launcher: str | None
) -> Iterator[str]:
    unknown = {
        place.group: None
        for place, row in zip(places, rows, strict=True)
        if row.profiled and row.wrapped and place.gpus is None
    }
    if unknown:
        have = any(row.worker.has_gpu for row in rows if row.worker.group in unknown)
        gpu = "a GPU" if have else "no GPU"
        why = ", as on this machine; gpuprof run looks on each node" if launcher == "run" else ""
        yield (
            f"{', '.join(unknown)}: assuming {gpu}{why}; give the GPUs of each rank in workers: "
            "NAME=RANKS:GPUS"
        )


def _same_names(rows: Sequence[PlannedWorker]) -> Iterator[str]:
    files = Counter(
        file
        for row in rows
        if row.profiled
        for file in row.distinct_files
        if "{pid}" not in file  # only the running job fills in the pid
    )
    file = next((os.path.basename(file) for file, count in files.items() if count > 1), None)
    if file is not None:
        stem, extension = os.path.splitext(file)
        yield (
            f"several workers name a report {file}; on one node they become {stem}.2{extension}, … "
            "in any order: add {worker} to the name"
        )


def _many(rows: Sequence[PlannedWorker]) -> Iterator[str]:
    reports = sum(len(row.distinct_files or row.worker.windows) for row in rows if row.profiled)
    if reports > MANY_REPORTS:
        yield f"{reports} reports are planned; select fewer ranks or steps to keep them manageable"


def _long(config: Config, rows: Sequence[PlannedWorker]) -> Iterator[str]:
    spans = [
        window.stop - window.start
        for row in rows
        if row.profiled
        for window in row.worker.windows
        if window.start is not None and window.stop is not None
    ]
    if spans and max(spans) > MANY_STEPS:
        yield (
            f"{config.where('steps')}: a report of {max(spans)} steps becomes too large to open; "
            "capture few steps, such as 10"
        )

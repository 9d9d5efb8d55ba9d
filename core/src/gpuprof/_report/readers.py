"""Reads the reports of a run with the hooks of installed backends."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import attrs

from gpuprof._artifacts import runs
from gpuprof._artifacts.records import is_own
from gpuprof._config import load
from gpuprof._config.programs import with_own_programs
from gpuprof.backend import loading
from gpuprof.backend.boundary import provider
from gpuprof.backend.types import RangeTimes, RecordedTrack
from gpuprof.errors import ConfigError, GpuprofError

Result = TypeVar("Result")


@attrs.frozen
class Reader:
    """The hooks `read_ranges` and `read_spans` of a backend.

    Args:
        read: the hook `read_ranges`, or else the ranges in what `read_spans` returns.
        identity: a digest of the backend's release and settings, because what the hook returns may
            depend on them.
        read_spans: the hook `read_spans`; ``None`` if the backend does not implement it.
    """

    read: Callable[..., list[RangeTimes] | None]
    identity: str
    read_spans: Callable[..., list[RecordedTrack] | None] | None = None


def read_each(
    files: Iterable[Path],
    read: Callable[[Path, Reader], Result | None],
    overrides: Sequence[str] = (),
) -> Iterator[tuple[Path, Result | GpuprofError | None]]:
    """Read several files at once, each with the first backend that can read it.

    A file in a run directory is read with that run's settings. Skips gpuprof's own files.

    Yields:
        Each file, in the given order, with the result of `read`; with ``None`` if no backend can
        read the file; or with the error if the file is broken.

    Raises:
        ConfigError: a backend refuses its settings.
    """

    @functools.cache
    def readers_of(folder: Path) -> list[Reader]:
        abouts = map(runs.about, (folder, *folder.parents))
        settings = next((about.config for about in abouts if about is not None), {})
        readers = (reader(name, settings, overrides) for name in loading.catalogue().entries)
        return [usable for usable in readers if usable is not None]

    def read_one(file: Path, readers: Sequence[Reader]) -> Result | GpuprofError | None:
        try:
            results = (read(file, usable) for usable in readers)
            return next((result for result in results if result is not None), None)
        except ConfigError:
            raise
        except GpuprofError as error:  # such as the report of a killed worker
            return error

    reports = [file for file in files if not is_own(file)]
    readers = [readers_of(file.absolute().parent) for file in reports]
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        yield from zip(reports, pool.map(read_one, reports, readers), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def reader(name: str, settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> Reader | None:
    """The reader of an installed backend; ``None`` if the backend does not load or has no reader.

    Args:
        settings: the run's configuration, empty if it is not known. The programs in it are not
            used. A backend other than the run's gets its defaults.
        overrides: ``key.key=value``; overrides for other backends are ignored.
    """
    overrides = [override for override in overrides if override.partition(".")[0] == name]
    own = settings.get("backend") == name
    try:
        return _reader(name, with_own_programs(settings if own else {"backend": name}), overrides)
    except Exception as error:
        if isinstance(error, ConfigError) and (own or overrides):
            raise
        return None  # `gpuprof backends` says why


def _reader(name: str, settings: Mapping[str, Any], overrides: Sequence[str]) -> Reader | None:
    plugin = loading.load(name, name)
    model = getattr(plugin, "Options", None)
    options = None
    if isinstance(plugin, type) and model is not None:
        config = load.load(settings, overrides=overrides, environ={})
        options = config.options("all", model)
        hooks = loading.manager(plugin(options))
    else:
        hooks = loading.manager(loading.make(name, plugin))
    ranges, spans = (
        hook if hook.get_hookimpls() else None
        for hook in (hooks.hook.read_ranges, hooks.hook.read_spans)
    )
    identity = _identity(name, plugin, options)
    if ranges is not None:
        return Reader(ranges, identity, spans)
    if spans is not None:
        return Reader(functools.partial(_ranges_in, spans), identity, spans)
    return None


def _ranges_in(
    read_spans: Callable[..., list[RecordedTrack] | None], path: str
) -> list[RangeTimes] | None:
    tracks = read_spans(path=path)
    return None if tracks is None else ranges_of(tracks)


def ranges_of(tracks: Iterable[RecordedTrack]) -> list[RangeTimes]:
    """The ranges among recorded tracks, nested as they ran.

    A range that ends after the one it began in, as those of tasks do, has no parents.

    >>> spans = [("step", 0, 9), ("load", 1, 3), ("load", 4, 6)]
    >>> for times in ranges_of([RecordedTrack("ranges", spans), RecordedTrack("kernels", spans)]):
    ...     print(times.parents, times.name, times.durations)
    () step (9,)
    ('step',) load (2, 2)
    """
    durations: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for track in tracks:
        if track.kind != "ranges":
            continue
        around: list[tuple[str, int]] = []  # the names and ends of the ranges that are open
        for name, start, end in sorted(track.spans, key=lambda span: (span[1], -span[2])):
            while around and around[-1][1] <= start:
                around.pop()
            nested = not around or end <= around[-1][1]
            parents = tuple(outer for outer, _ in around) if nested else ()
            durations.setdefault((parents, name), []).append(end - start)
            if nested:
                around.append((name, end))
    return [
        RangeTimes(name, tuple(times), {}, parents) for (parents, name), times in durations.items()
    ]


def _identity(name: str, plugin: object, options: object) -> str:
    distribution = provider(plugin)
    try:
        release = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        release = ""
    # a digest, as settings can hold secrets
    content = json.dumps([name, distribution, release, repr(options)])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

"""Settings of other systems, in gpuprof's own terms.

What reads each system's is handed in: nothing here knows any of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from gpuprof._config import sources
from gpuprof.backend import loading
from gpuprof.errors import ConfigError

Readers = Mapping[str, Callable[[], Any]]
"""By the name of each system, what gives its module: ``read``, ``PATHS``, ``SIGNS`` and
``IN_ENVIRONMENT``."""


@attrs.frozen
class Translation:
    """Settings of another system in gpuprof's own terms.

    Args:
        settings: a configuration of gpuprof.
        path: where they stand in the other system's settings, for messages.
        paths: keys of `settings`, dotted, that stand elsewhere, with the full path that they have
            there.
        notes: what is read otherwise than it was written, and why.
        workers: the worker groups that the other system is known to have, each with its ``gpus``
            per rank.
        problems: what is not valid in the other system's settings, with its path there. `settings`
            are without it, and can still be looked at, so that everything is said at once.
    """

    settings: dict[str, Any]
    path: str = ""
    paths: Mapping[str, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    workers: Mapping[str, Any] = attrs.field(factory=dict)
    problems: tuple[str, ...] = ()


def read(system: str, settings: Mapping[str, Any], readers: Readers) -> Translation:
    """Read the settings of another system.

    Raises:
        ConfigError: with everything in them that is not valid, each with its full path there.
    """
    found = _read(_reader(system, readers), settings)
    if found.problems:
        raise ConfigError(found.problems)
    return found


def recognised(settings: Mapping[str, Any], readers: Readers) -> str | None:
    """Whose settings these are, if they are another system's that has keys of its own at the top.

    >>> from gpuprof.compat import READERS
    >>> recognised({"actor_rollout_ref": {}, "trainer": {}}, READERS), recognised({"backend": "nsight", "runner": {}}, READERS)
    ('verl', None)
    """
    systems = (
        system
        for system in readers
        if "backend" not in settings and settings.keys() & set(_reader(system, readers).SIGNS)
    )
    return next(systems, None)


def translate(
    system: str, source: Any, overrides: Sequence[str], environ: Mapping[str, str], readers: Readers
) -> tuple[Translation, list[str]]:
    """As `read`, with the overrides that begin like a key of the other system applied first.

    Args:
        source: ``None`` where the system's settings are the environment.

    Returns:
        The translation, with its problems, and the other overrides.
    """
    reader = _reader(system, readers)
    roots = {path.partition(".")[0] for path in reader.PATHS}
    theirs = [
        text
        for text in overrides
        if text.lstrip("+~").partition("=")[0].partition(".")[0].strip() in roots
    ]
    if source is None:
        if not reader.IN_ENVIRONMENT:
            raise ConfigError(
                [f"system: {system!r} needs a configuration: a file, or the system's own object"]
            )
        source = {name: environ[name] for name in reader.PATHS if name in environ}
    if not isinstance(source, Mapping):
        raise ConfigError([f"configuration: {source!r} is not valid; expected a mapping"])
    return _read(reader, sources.with_overrides(source, theirs)), [
        text for text in overrides if text not in theirs
    ]


def _read(reader: Any, settings: Mapping[str, Any]) -> Translation:
    found: Translation = reader.read(
        sources.pick(settings, reader.PATHS), frozenset(loading.known_backends())
    )
    return found


def _reader(system: str, readers: Readers) -> Any:
    if system not in readers:
        close = difflib.get_close_matches(str(system), readers, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            [f"system: {system!r} is not valid; {hint}Valid: {', '.join(['gpuprof', *readers])}"]
        )
    return readers[system]()

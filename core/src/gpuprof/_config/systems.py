"""Settings of other systems, translated into gpuprof's own keys.

The caller hands in a reader for each system: nothing here knows any of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import attrs

from gpuprof._config import sources
from gpuprof.backend import loading
from gpuprof.errors import ConfigError


@attrs.frozen
class Translation:
    """Another system's settings as a configuration of gpuprof.

    Args:
        settings: the configuration.
        path: the path of the section in the other system's settings, for messages.
        paths: for keys of `settings` (dotted) from elsewhere, their full path there.
        notes: each difference from what was written, and the reason.
        workers: the system's known worker groups, each with its ``gpus`` per rank.
        problems: each invalid setting, with its full path. `settings` leaves these out, so that the
            rest can still be checked and all problems reported at once.
    """

    settings: dict[str, Any]
    path: str = ""
    paths: Mapping[str, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    workers: Mapping[str, Any] = attrs.field(factory=dict)
    problems: tuple[str, ...] = ()


class Reader(Protocol):
    """What the module of a system offers.

    Attributes:
        PATHS: the dotted paths, or variables, that `read` looks at.
        SIGNS: keys at the top that only this system has.
        IN_ENVIRONMENT: whether its settings are environment variables.
    """

    @property
    def PATHS(self) -> Sequence[str]: ...
    @property
    def SIGNS(self) -> Sequence[str]: ...
    @property
    def IN_ENVIRONMENT(self) -> bool: ...

    def read(self, settings: dict[str, Any], backends: Collection[str]) -> Translation:
        """Translate the settings.

        Args:
            settings: plain, with nothing but what `PATHS` names.
            backends: the names of all installed backends.
        """
        ...


Readers = Mapping[str, Callable[[], Reader]]
"""For the name of each system, a function that imports its reader."""


def read(system: str, settings: Mapping[str, Any], readers: Readers) -> Translation:
    """Read the settings of another system.

    Raises:
        ConfigError: with every invalid setting and its full path.
    """
    found = _read(_reader(system, readers), settings)
    if found.problems:
        raise ConfigError(found.problems)
    return found


def recognised(settings: Mapping[str, Any], readers: Readers) -> str | None:
    """The system with keys of its own at the top of these settings, if there is one.

    >>> from types import SimpleNamespace
    >>> readers = {"verl": lambda: SimpleNamespace(SIGNS=["trainer"])}
    >>> recognised({"trainer": {}}, readers)
    'verl'
    >>> recognised({"backend": "nsight", "trainer": {}}, readers)
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
    """As `read`, after applying the overrides of the other system's keys.

    Args:
        source: ``None`` if the system's settings are the environment.

    Returns:
        The translation, with its problems, and the remaining overrides.
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
                [
                    (
                        f"system: {system!r} needs a configuration; give a file or the system's "
                        "own "
                        "object"
                    )
                ]
            )
        source = {name: environ[name] for name in reader.PATHS if name in environ}
    if not isinstance(source, Mapping):
        raise ConfigError([f"configuration: {source!r} is not valid; expected a mapping"])
    return _read(reader, sources.with_overrides(source, theirs)), [
        text for text in overrides if text not in theirs
    ]


def _read(reader: Reader, settings: Mapping[str, Any]) -> Translation:
    return reader.read(sources.pick(settings, reader.PATHS), frozenset(loading.known_backends()))


def _reader(system: str, readers: Readers) -> Reader:
    if system not in readers:
        close = difflib.get_close_matches(str(system), readers, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            [f"system: {system!r} is not valid; {hint}Valid: {', '.join(['gpuprof', *readers])}"]
        )
    return readers[system]()

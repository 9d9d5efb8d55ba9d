"""Settings of other systems, translated into gpuprof's own keys.

The readers are found by entry point: this module knows none of them by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import attrs

from gpuprof._config import sources
from gpuprof._config.schema import FLAT_KEYS, KEYS
from gpuprof.backend import loading
from gpuprof.errors import ConfigError, PluginError


def nothing_selected() -> dict[str, Any]:
    """The configuration for settings of another system that select nothing.

    Nothing is recorded, or with ``GPUPROF_ENABLED=true`` times, without a profiler.
    """
    return {"enabled": False, "backend": "none", "worker_groups": "all", "instruments": ["ray"]}


@attrs.frozen
class Translation:
    """Another system's settings as a configuration of gpuprof.

    Args:
        settings: the configuration.
        path: the full path of the profiling section in the other system's settings, for messages.
        paths: for each dotted key of `settings` that comes from outside that section, its full path
            in the other system's settings.
        notes: each setting that is read differently than written, and why.
        workers: the worker groups that the system is known to have, with ``gpus`` per rank.
        problems: each invalid setting, with its full path. `settings` leaves these out, so that the
            rest can still be checked and all problems reported at once.
        off: why nothing is profiled, in the other system's words; empty if something is.
        complete: whether the system has no worker groups but `workers`.
    """

    settings: dict[str, Any]
    path: str = ""
    paths: Mapping[str, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    workers: Mapping[str, Any] = attrs.field(factory=dict)
    problems: tuple[str, ...] = ()
    off: str = ""
    complete: bool = True


class Reader(Protocol):
    """The interface of a module that reads one system's settings."""

    @property
    def PATHS(self) -> Sequence[str]:
        """The dotted paths, or environment variables, that `read` uses."""
        ...

    @property
    def SIGNS(self) -> Sequence[str]:
        """Top-level keys that identify this system."""
        ...

    @property
    def IN_ENVIRONMENT(self) -> bool:
        """Whether its settings are environment variables."""
        ...

    def read(self, settings: dict[str, Any], backends: Collection[str]) -> Translation:
        """Translate the settings.

        Args:
            settings: plain mappings and lists, reduced to `PATHS`.
            backends: the names of all installed backends.
        """
        ...


Readers = Mapping[str, Callable[[], Reader]]
"""By system name: a function that imports the system's reader."""


def installed() -> Readers:
    """The systems whose plugins are installed."""
    catalogue = loading.catalogue(loading.SYSTEMS)
    return {name: partial(reader, name, catalogue) for name in sorted(catalogue.entries)}


def reader(system: str, found: loading.Catalogue | None = None) -> Reader:
    """A system's reader."""
    made: Reader = loading.load(system, "system", loading.SYSTEMS, found)
    return made


def read(system: str, settings: Mapping[str, Any]) -> Translation:
    """Read the settings of another system."""
    translation = _read(reader(system), settings)
    if translation.problems:
        raise ConfigError(translation.problems)
    return translation


def recognised(settings: object, section: str, readers: Readers) -> str | None:
    """Guess which system these settings are written for, from their keys.

    Reads no values, because some cannot be resolved in a file that is not composed yet.

    Args:
        section: the path of gpuprof's own section in `settings`, or empty. A file with such a
            section is gpuprof's own, unless the other system has a section at the same path.

    >>> from types import SimpleNamespace
    >>> readers = {"x": lambda: SimpleNamespace(SIGNS=["a", "run"], PATHS=["a.profiling"])}
    >>> recognised({"run": {}}, "", readers)
    'x'
    >>> recognised({"backend": "nsight", "run": {}}, "", readers)
    >>> recognised({"a": {"profiling": {}}, "run": {}}, "a.profiling", readers)
    'x'
    >>> recognised({"a": {"profiling": {}}}, "a.profiling", readers)
    """
    if not isinstance(settings, Mapping) or "backend" in settings:
        return None
    parent, _, key = section.partition(".")
    for system, reader in _working(readers):
        signs = settings.keys() & set(reader.SIGNS)
        if section and section not in reader.PATHS:
            continue
        if section and not settings[parent].keys() - {key}:
            signs -= {parent}
        if signs:
            return system
    return None


def exported(environ: Mapping[str, str], readers: Readers) -> Iterator[str]:
    """Yield a hint for each system whose variables are set but not read."""
    for system, reader in _working(readers):
        names = [name for name in reader.PATHS if environ.get(name)]
        if reader.IN_ENVIRONMENT and names:
            yield (
                f"{', '.join(names)}: set, but not read; if this job's profiling is meant, give "
                f"--from {system} (system={system!r})"
            )


def remedy(system: str) -> str:
    """The advice to read the settings as those of the system."""
    return f"to read it as such, give --from {system} (system={system!r})"


def translate(
    system: str, source: Any, overrides: Sequence[str], environ: Mapping[str, str]
) -> tuple[Translation, list[str]]:
    """Apply the overrides of the other system's keys, then read its settings.

    Unlike `read`, returns the invalid settings in the translation instead of raising.

    Args:
        source: the settings; ``None`` takes them from the environment.

    Returns:
        The translation, and those overrides that set gpuprof's own keys.
    """
    chosen = reader(system)
    if source is None:
        if not chosen.IN_ENVIRONMENT:
            raise ConfigError(
                f"system: {system!r} needs a configuration; give its file or its "
                "configuration object"
            )
        source = {name: environ[name] for name in chosen.PATHS if name in environ}
    if not isinstance(source, Mapping):
        raise ConfigError(f"configuration: {source!r} is not valid; expected a mapping")
    _check_system(system, chosen, source)
    their_overrides = [text for text in overrides if _is_read(text, chosen.PATHS)]
    rest = [text for text in overrides if text not in their_overrides]
    our_overrides = [text for text in rest if _is_ours(text, source)]
    problems = [
        problem
        for text in rest
        if text not in our_overrides
        for problem in _misspelt(text, chosen.PATHS, source)
    ]
    if problems:
        raise ConfigError(problems)
    return _read(chosen, sources.with_overrides(source, their_overrides)), our_overrides


def _check_system(system: str, reader: Reader, source: Mapping[str, Any]) -> None:
    """Refuse settings that are gpuprof's own, or those of a third system."""
    if source.keys() & set(reader.SIGNS):
        return
    likely = "gpuprof" if "backend" in source else recognised(source, "", installed())
    if likely is not None:
        raise ConfigError(
            f"configuration: looks like settings of {likely}, not of {system}; {remedy(likely)}"
        )


def _is_read(override: str, paths: Sequence[str]) -> bool:
    """Whether an override changes a setting that the reader of the other system uses.

    >>> paths = ["trainer.profile_steps", "critic.profiler"]
    >>> [_is_read(text, paths) for text in ("critic.profiler.enable=1", "critic.model=x")]
    [True, False]
    """
    path = override.lstrip("+~").partition("=")[0].strip()
    return any(f"{path}.".startswith(f"{read}.") or read.startswith(f"{path}.") for read in paths)


def _is_ours(override: str, source: Mapping[str, Any]) -> bool:
    """Whether an override is meant for gpuprof.

    Other overrides are meant for the job, as in a pasted command line: they set keys of the other
    system that have nothing to do with profiling.
    """
    root, *below = sources.overridden(override)
    if root in source and root not in KEYS:
        return False
    our_keys = [*KEYS, *FLAT_KEYS, *loading.known_sections()]
    return root in our_keys or not (below or _close(root, our_keys) is None)


def _misspelt(override: str, paths: Sequence[str], source: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem if an override sets an unknown key that resembles one of the other system."""
    keys = override.lstrip("+~").partition("=")[0].strip().split(".")
    for place, key in enumerate(keys):
        parent = ".".join(keys[:place])
        inside = [path[len(parent) :].lstrip(".") for path in paths if path.startswith(parent)]
        words = {path.partition(".")[0] for path in inside}
        path = f"{parent}.{key}".lstrip(".")
        if key in words:
            continue
        close = _close(key, [word for word in words if word], 0.85)
        if close is not None and not sources.has(source, path):
            yield f"{path}: unknown key; did you mean {close!r}?"
        return


def _close(word: str, words: Sequence[str], cutoff: float = 0.75) -> str | None:
    return next(iter(difflib.get_close_matches(word, words, n=1, cutoff=cutoff)), None)


def _read(reader: Reader, settings: Mapping[str, Any]) -> Translation:
    return reader.read(sources.pick(settings, reader.PATHS), frozenset(loading.known_sections()))


def _working(readers: Readers) -> Iterator[tuple[str, Reader]]:
    """Yield the readers that can be imported: a broken one must not stop another system's job."""
    for system, load in readers.items():
        try:
            working = load()
        except PluginError:
            continue
        yield system, working

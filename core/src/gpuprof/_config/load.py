"""Reading a configuration from YAML or a mapping, the environment and overrides."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import attrs

from gpuprof._config import sources
from gpuprof._config.schema import (
    DISABLED,
    FLAT_KEYS,
    KEYS,
    OWN_KEYS,
    RECORDING_KEYS,
    SELECTION_KEYS,
    SWITCHES,
    VERBATIM,
    Config,
    Selection,
    structure_layer,
)
from gpuprof._config.selection import Names
from gpuprof._config.sources import Source
from gpuprof._config.structure import Invalid, join, plain, unknown_key
from gpuprof._config.systems import (
    Readers,
    Translation,
    exported,
    installed,
    recognised,
    remedy,
    translate,
)
from gpuprof.backend import loading
from gpuprof.backend.boundary import PLUGINS
from gpuprof.errors import ConfigError, PluginError

Result = TypeVar("Result")

_MOST_GROUPS = 1000
_NOTHING = {"backend": "none", "enabled": False}


def load(
    source: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    path: str = "",
    *,
    system: str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """Read a configuration.

    Later sources win: `defaults`, `source`, variables ``GPUPROF_…``, `overrides`.

    Args:
        source: a YAML file or a mapping, with the configuration at the top or at one of `SECTIONS`.
            ``None`` means the file that ``GPUPROF_CONFIG`` names; if that is not set either,
            nothing is profiled.
        path: the full path of the mapping inside a larger configuration, for messages.
        system: the system that the settings are written for. ``None`` means the system that
            ``GPUPROF_SYSTEM`` names, or else gpuprof.
        overrides: ``key.key=value``, with gpuprof's keys or those of `system`.
        environ: the environment; ``None`` means the environment of this process.
        defaults: the caller's values for keys that nothing else sets.

    Raises:
        ConfigError: with every problem and its full path.
        PluginError: the plugin that reads the settings of `system` cannot be used.
    """
    environ = os.environ if environ is None else environ
    if source is None:
        source = environ.get("GPUPROF_CONFIG") or None
    system = system or environ.get("GPUPROF_SYSTEM") or None
    variables = sources.from_environment(environ, {key: key in VERBATIM for key in KEYS}, SWITCHES)
    file = source if isinstance(source, (str, os.PathLike)) else None
    if file is not None:
        source = sources.read_file(file)
    hint = ""
    if system is None or system == "gpuprof":
        candidates = {} if system else installed()
        unread = tuple(exported(environ, candidates))
        if source is None and not variables and not overrides:
            notes = (*unread, f"{file}: empty, so nothing is profiled") if file else unread
            return attrs.evolve(DISABLED, source=Source(notes=notes)) if notes else DISABLED
        hint = "" if path else _hint(source, file, candidates)
        translation = _own(source, path, file, hint, unread)
    else:
        translation, overrides = translate(system, source, overrides, environ)
    settings = sources.override(
        {**(defaults or {}), **translation.settings, **variables}, overrides
    )
    places = {
        **{
            ".".join(keys): join(translation.path, ".".join(keys))
            for keys in map(sources.overridden, overrides)
        },
        **translation.paths,
        **{key: sources.variable(key) for key in variables if settings.get(key) is variables[key]},
    }
    origin = Source(
        path=translation.path,
        paths=places,
        notes=translation.notes,
        workers=translation.workers,
        file=str(file or ""),
        off=translation.off,
        complete=translation.complete,
    )
    try:
        data = plain(settings)
    except ConfigError as error:
        raise ConfigError([origin.where(problem) for problem in error.problems]) from None
    try:
        return _parse(data, origin, translation.problems)
    except ConfigError as error:
        raise _hinted(error, hint) from None


def _own(source: Any, path: str, file: object, hint: str, notes: tuple[str, ...]) -> Translation:
    """gpuprof's section of the settings. Refuses settings with only another system's section."""
    try:
        values, path = (source, path) if path else sources.section(source)
        if not hint:
            return Translation(_mapping(values, path), path, notes=notes)
        if path:
            return Translation(_mapping(values, path), path, notes=(hint, *notes))
    except ConfigError as error:
        raise _hinted(_of_file(error, file), hint) from None
    raise ConfigError(hint)


def _hint(source: object, file: object, readers: Readers) -> str:
    """A hint that the settings seem to be written for another system; empty if they do not."""
    try:
        path = sources.section(source)[1]
    except ConfigError:
        path = ""  # whoever reads the section reports the error
    likely = recognised(source, path, readers)
    if likely is None:
        return ""
    whole = f"{file}" if file else "configuration"
    if not path:
        return (
            f"{whole}: looks like settings of {likely}; expected gpuprof's keys at the top, or a "
            f"mapping at {' or '.join(sources.SECTIONS)}; {remedy(likely)}"
        )
    return (
        f"{whole}: looks like settings of {likely}, but {path} is read as gpuprof's, with other "
        f"file names and directories; {remedy(likely)}; --from gpuprof ends this warning"
    )


def _hinted(error: ConfigError, hint: str) -> ConfigError:
    return ConfigError([hint, *error.problems]) if hint else error


def _of_file(error: ConfigError, file: object) -> ConfigError:
    return ConfigError([f"{file}: {problem}" for problem in error.problems]) if file else error


def _mapping(values: Any, path: str) -> dict[str, Any]:
    data = plain(values, path)
    if data is None:
        return dict(_NOTHING) if path else {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path or 'configuration'}: {Invalid(data, 'a mapping')}")
    return data


def _parse(data: dict[str, Any], source: Source, earlier_problems: Sequence[str]) -> Config:
    if data.get("backend", "none") is None:
        data["backend"] = "none"
    backend = data.get("backend")
    backends, all_sections = loading.known_backends(), loading.known_sections()
    if isinstance(backend, str) and backend in loading.RESERVED - {"none"}:
        try:
            loading.load(backend, "backend")
        except PluginError as error:
            valid_names = ", ".join([*backends, "none"])
            raise ConfigError(source.where(f"{error}; valid: {valid_names}")) from None
    names = [backend, *(data["plugins"] if isinstance(data.get("plugins"), list) else ())]
    sections = {*all_sections, *(name for name in names if name and isinstance(name, str))}
    sections -= loading.RESERVED
    own = {key: value for key, value in data.items() if key in OWN_KEYS}
    selection = {key: value for key, value in data.items() if key in SELECTION_KEYS}
    valid = [*KEYS, *FLAT_KEYS, *all_sections]
    shapes = _section_problems(data.get("groups"), sections)
    shapes += [
        f"{key}: {Invalid(data[key], 'a mapping')}"
        for key in (*sections, "groups")
        if key in data and data[key] is not None and not isinstance(data[key], dict)
    ]
    problems = [
        join("", key) + f": {unknown_key(key, valid)}"
        for key in data
        if key not in {*valid, *sections}
    ] + shapes
    if isinstance(backend, str) and not backend.strip():
        problems.append(
            f"backend: {backend!r} is not valid; valid: {', '.join([*backends, 'none'])}"
        )
        backend = own["backend"] = "none"
    if "backend" not in data:
        problems.append(f"backend: missing; valid: {', '.join([*backends, 'none'])}")
        own["backend"] = "none"
    problems = [*earlier_problems, *(source.where(problem) for problem in problems)]
    parts: dict[str, Any] = {}
    for name, values, model in [
        ("defaults", selection, Selection),
        ("own", own if not shapes else own | {"groups": {}}, Config),
    ]:
        try:
            parts[name] = structure_layer(values, model, "", source)
        except ConfigError as error:
            problems += error.problems
    layers: dict[str, Any] = {
        "groups": data.get("groups") or {},
        "section": data.get(str(backend)) or {},
        "flat": {key: data[key] for key in FLAT_KEYS if key in data},
        "source": source,
    }
    plugins = parts["own"].plugins if "own" in parts else Names()
    layers["sections"] = {name: data[name] for name in plugins if data.get(name)}
    with_options = bool(data.get("enabled", True))
    if not shapes:
        problems += _problems_below(Config(str(backend), plugins=plugins, **layers), with_options)
    if problems:
        # the backend first, because it decides which keys are valid
        missing = (
            _missing_backend(backend, source)
            if data.get("enabled", True) and not earlier_problems
            else []
        )
        raise ConfigError(list(dict.fromkeys([*missing, *problems])))
    config: Config = attrs.evolve(parts["own"], defaults=parts["defaults"], **layers)
    asks = _each_options(config, config.deprecated) if with_options else ()
    warnings = [note for ask in asks for note in ask()]
    if warnings:
        notes = tuple(dict.fromkeys([*source.notes, *warnings]))
        config = attrs.evolve(config, source=attrs.evolve(source, notes=notes))
    return config


def _missing_backend(backend: object, source: Source) -> list[str]:
    """The reason why a backend cannot be loaded; empty if it can."""
    if not isinstance(backend, str) or backend == "none":
        return []
    try:
        loading.load_backend(backend, source.where("backend"))
    except PluginError as error:
        return [str(error)]
    return []


def _problems_below(config: Config, with_options: bool) -> list[str]:
    """Problems in the groups' overrides and, if `with_options`, in the backend's options."""
    calls: list[Callable[[], object]] = [
        functools.partial(check, pattern)
        for pattern in config.groups
        for check in (config.selection, config.recorded_as)
    ]
    if with_options:
        calls += _each_options(config, config.options)
    problems: list[str] = []
    for call in calls:
        try:
            call()
        except ConfigError as error:
            problems += error.problems
    return problems


def _each_options(config: Config, ask: Callable[..., Result]) -> Iterator[Callable[[], Result]]:
    """Yield calls of `ask` for the options of the backend and of each plugin.

    Each is called once for no group and once for each group. Skips backends and plugins that cannot
    be loaded: they are reported when they are needed, with the install command.
    """
    models: dict[str, type[Any] | None] = {}
    with suppress(PluginError):
        models[""] = loading.load_backend(config.backend, "backend").Options
    for name in config.plugins:
        with suppress(PluginError):
            models[name] = loading.options_of(loading.load(name, "plugins", PLUGINS))
    for name, model in models.items():
        if model is not None:
            for group in ("", *config.groups):
                yield functools.partial(ask, group, model, name)


def _section_problems(groups: object, sections: set[Any]) -> list[str]:
    if not isinstance(groups, dict):
        return []
    if len(groups) > _MOST_GROUPS:
        return [f"groups: {len(groups)} groups are not valid; expected at most {_MOST_GROUPS}"]
    problems = []
    valid = [*SELECTION_KEYS, *RECORDING_KEYS, *sections]
    for pattern, override in groups.items():
        where = join("groups", pattern)
        if not isinstance(pattern, str):
            problems.append(f"{where}: {Invalid(pattern, 'the name of a group, or a wildcard')}")
        elif override is not None and not isinstance(override, dict):
            problems.append(f"{where}: {Invalid(override, 'a mapping')}")
        else:
            problems += [
                f"{join(where, key)}: {unknown_key(key, valid)}"
                for key in override or ()
                if key not in valid
            ]
            problems += [
                f"{join(where, key)}: {Invalid(override[key], 'a mapping')}"
                for key in sections
                if override and not isinstance(override.get(key) or {}, dict)
            ]
            problems += _no_effect(where, override or {})
    return problems


def _no_effect(where: str, override: dict[str, Any]) -> list[str]:
    """Problems of keys that have no effect because ``name`` or ``record: false`` is set, too."""
    name, others = override.get("name"), [key for key in override if key not in RECORDING_KEYS]
    if override.get("record") is False:
        return [f"{where}.{key}: no effect with record: false; remove one" for key in others]
    if isinstance(name, str):
        return [f"{where}.{key}: no effect with name; move it to groups.{name}" for key in others]
    return []

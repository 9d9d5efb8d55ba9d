"""Replaces the programs that a run's settings name by those in this user's configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import attrs

from gpuprof._config.load import load
from gpuprof.backend import loading
from gpuprof.backend.boundary import BACKENDS, PLUGINS
from gpuprof.errors import ConfigError, PluginError


def with_own_programs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Make the settings from a run directory safe to use.

    Anybody may have written these settings, so gpuprof never runs a program that they name. It
    takes programs from the user's own configuration, which ``GPUPROF_CONFIG`` and other variables
    set, or else from PATH.
    """
    result = copy.deepcopy(dict(settings))
    if isinstance(result.get("backend"), str):
        _replace(result, result["backend"], BACKENDS)
    plugins = result.get("plugins")
    for plugin in plugins if isinstance(plugins, list) else ():
        if isinstance(plugin, str):
            _replace(result, plugin, PLUGINS)
    return result


def _replace(values: dict[str, Any], name: str, group: str) -> None:
    """Replace the programs named in the sections of one backend or plugin, in place."""
    programs = _programs(name, group)
    groups = values.get("groups")
    for layer in (values, *(groups.values() if isinstance(groups, dict) else ())):
        section = layer.get(name) if isinstance(layer, dict) else None
        if isinstance(section, dict):
            for key in programs:
                section.pop(key, None)
    own = _own_section(name)
    replacements = {key: own[key] for key in programs if key in own}
    if replacements and isinstance(values.get(name) or {}, dict):
        values[name] = {**(values.get(name) or {}), **replacements}


def _own_section(name: str) -> dict[str, Any]:
    """The section of a backend or plugin in the user's own configuration.

    Empty if the configuration has no such section or is not valid: reading an old run must not
    fail because of it.
    """
    try:
        own = load()
    except ConfigError:
        return {}
    section: dict[str, Any] = own.section if own.backend == name else own.sections.get(name, {})
    return section


def _programs(name: str, group: str) -> list[str]:
    try:
        model = loading.options_of(loading.load(name, "backend", group))
    except PluginError:
        return []  # reported where the plugin is needed
    fields = attrs.fields(model) if model is not None else ()
    return [field.name for field in fields if field.metadata.get("program")]

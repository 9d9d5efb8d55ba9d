"""The programs that a run's settings name, replaced by this user's own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import attrs

from gpuprof._config.load import load
from gpuprof.backend import loading
from gpuprof.errors import ConfigError, PluginError


def with_own_programs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, as they lie in its directory, fit to be used.

    Anybody may have written them, so no program that they name is run: programs come from the
    user's own configuration, which ``GPUPROF_CONFIG`` and other variables set, or from PATH.

    Args:
        settings: a configuration in gpuprof's own keys.

    """
    found = copy.deepcopy(dict(settings))
    backend = found.get("backend")
    if not isinstance(backend, str):
        return found
    programs = _programs(backend)
    groups = found.get("groups")
    for layer in (found, *(groups.values() if isinstance(groups, dict) else ())):
        section = layer.get(backend) if isinstance(layer, dict) else None
        if isinstance(section, dict):
            for key in programs:
                section.pop(key, None)
    own = _own_section(backend)
    mine = {key: own[key] for key in programs if key in own}
    if mine and isinstance(found.get(backend) or {}, dict):
        found[backend] = {**(found.get(backend) or {}), **mine}
    return found


def _own_section(backend: str) -> dict[str, Any]:
    """A backend's section of the user's own configuration.

    Empty if that is of another backend, or not valid: it is needed for new runs, not for this one.
    """
    try:
        own = load()
    except ConfigError:
        return {}
    return own.section if own.backend == backend else {}


def _programs(backend: str) -> list[str]:
    try:
        model = loading.load_backend(backend, "backend").Options
    except PluginError:
        return []  # said where the backend is needed
    return [field.name for field in attrs.fields(model) if field.metadata.get("program")]

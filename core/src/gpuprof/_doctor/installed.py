"""Lists the installed backends and plugins, with their profilers."""

from __future__ import annotations

from typing import Any

import attrs

from gpuprof.backend import contract, hookspecs, loading
from gpuprof.backend.boundary import BACKENDS, PLUGINS
from gpuprof.backend.types import Tool


@attrs.frozen
class Survey:
    """An installed backend or plugin.

    Args:
        hooks: the hooks that it implements, in the order of `gpuprof.backend.hookspecs`.
        capability: how it records: ``wraps``, ``in_process`` or ``env_only``.
        tool: its profiler on this machine, if found.
        missing: how to install its profiler, or why gpuprof did not look for the profiler.
        error: why it cannot be used; ``None`` if it can be used.
        is_plugin: whether it is a plugin for the key `plugins`, and not a backend.
    """

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...] = ()
    capability: contract.Capability | None = None
    tool: Tool | None = None
    missing: str | None = None
    error: str | None = None
    is_plugin: bool = False


def survey() -> list[Survey]:
    """Import each installed backend and plugin separately, and look for its profiler."""
    surveys = [*_survey_group(BACKENDS), *_survey_group(PLUGINS)]
    return sorted(surveys, key=lambda plugin: (plugin.is_plugin, plugin.name))


def _survey_group(group: str) -> list[Survey]:
    plugins = loading.catalogue(group)
    owners = [(name, entry.dist) for name, entry in plugins.entries.items()]
    surveys = [
        _survey_one(name, dist.name if dist else "", dist.version if dist else "", group)
        for name, dist in owners
    ]
    for name, (distributions, problem) in plugins.unusable.items():
        surveys.append(Survey(name, ", ".join(distributions), "", error=problem))
    return [attrs.evolve(entry, is_plugin=group == PLUGINS) for entry in surveys]


def _survey_one(name: str, distribution: str, version: str, group: str) -> Survey:
    try:
        plugin = loading.load(name, name, group)
        capability = contract.capability(plugin)
        options = _required_options(plugin)
        if options:
            names = tuple(hook for hook in hookspecs.__all__ if contract.has(plugin, hook))
            return Survey(
                name=name,
                distribution=distribution,
                version=version,
                hooks=names,
                capability=capability,
                missing=f"not checked: it has required options: {', '.join(options)}",
            )
        hooks = loading.manager(loading.make(name, plugin))
        names = tuple(
            hook for hook in hookspecs.__all__ if getattr(hooks.hook, hook).get_hookimpls()
        )
        tool = hooks.hook.probe()
        missing = (
            (hooks.hook.missing_tool() or "not found on this machine")
            if tool is None and "probe" in names
            else None
        )
    except Exception as error:
        return Survey(name, distribution, version, error=f"{type(error).__name__}: {error}")
    return Survey(
        name=name,
        distribution=distribution,
        version=version,
        hooks=names,
        capability=capability,
        tool=tool,
        missing=missing,
    )


def _required_options(plugin: Any) -> list[str]:
    options = getattr(plugin, "Options", None)
    return (
        [field.name for field in attrs.fields(options) if field.default is attrs.NOTHING]
        if options is not None
        else []
    )

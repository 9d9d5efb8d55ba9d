"""The installed backends and plugins, each imported by itself, and their profilers."""

from __future__ import annotations

from typing import Any

import attrs
import pluggy

from gpuprof.backend import hookspecs, loading
from gpuprof.backend.types import Tool


@attrs.frozen
class Survey:
    """An installed backend or plugin.

    Args:
        name: its entry point.
        version: its distribution's.
        hooks: the hooks that it implements, in the order of `gpuprof.backend.hookspecs`.
        tool: the profiler that it found on this machine.
        missing: how to install its profiler, if it needs one and found none.
        error: why it cannot be used; ``None`` if it can.
    """

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...] = ()
    tool: Tool | None = None
    missing: str | None = None
    error: str | None = None


def survey() -> list[Survey]:
    """Import every installed plugin by itself, and look for its profiler."""
    found = loading.catalogue()
    owners = [(name, entry.dist) for name, entry in found.entries.items()]
    surveyed = [
        _try_out(name, dist.name if dist else "", dist.version if dist else "")
        for name, dist in owners
    ]
    for name, distributions in found.duplicates.items():
        surveyed.append(
            Survey(
                name,
                ", ".join(distributions),
                "",
                error="installed twice; uninstall one of these distributions",
            )
        )
    return sorted(surveyed, key=lambda plugin: plugin.name)


def _try_out(name: str, distribution: str, version: str) -> Survey:
    try:
        plugin = loading.load(name, name)
        required = _required_options(plugin)
        if required:
            marks = pluggy.PluginManager("gpuprof")
            implemented = tuple(
                hook
                for hook in hookspecs.__all__
                if marks.parse_hookimpl_opts(plugin, hook) is not None
            )
            return Survey(
                name,
                distribution,
                version,
                implemented,
                missing=f"not tried; required options: {', '.join(required)}",
            )
        hooks = loading.manager(loading.make(plugin))
        implemented = tuple(
            hook for hook in hookspecs.__all__ if getattr(hooks.hook, hook).get_hookimpls()
        )
        tool = hooks.hook.probe()
        missing = (
            (hooks.hook.missing_tool() or "not found on this machine")
            if tool is None and "probe" in implemented
            else None
        )
    except Exception as error:
        return Survey(name, distribution, version, error=f"{type(error).__name__}: {error}")
    return Survey(name, distribution, version, implemented, tool, missing)


def _required_options(plugin: Any) -> list[str]:
    options = getattr(plugin, "Options", None)
    return (
        [field.name for field in attrs.fields(options) if field.default is attrs.NOTHING]
        if options is not None
        else []
    )

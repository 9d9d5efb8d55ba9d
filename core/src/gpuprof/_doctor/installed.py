"""What is installed, tried out: every backend and plugin by itself, and whether its profiler is
here.
"""

from __future__ import annotations

from typing import Any

import attrs
import pluggy

from gpuprof.backend import hookspecs, loading
from gpuprof.backend.types import Tool


@attrs.frozen
class Survey:
    """An installed backend or plugin, tried out.

    Args:
        name: of its entry point.
        version: of its distribution.
        hooks: those that it implements, in the order of `gpuprof.backend.hookspecs`.
        tool: the profiler that it has found on this machine.
        missing: how to get it, where it needs one that is not here.
        error: why it cannot be used; ``None`` where it can.
    """

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...] = ()
    tool: Tool | None = None
    missing: str | None = None
    error: str | None = None


def survey() -> list[Survey]:
    """Import everything that is installed, each by itself, and look for its profiler here."""
    found = loading.catalogue()
    owners = [(name, entry.dist) for name, entry in found.entries.items()]
    surveyed = [
        _try_out(name, dist.name if dist else "", dist.version if dist else "")
        for name, dist in owners
    ]
    for name, distributions in found.duplicates.items():
        surveyed.append(
            Survey(name, ", ".join(distributions), "", error="offered twice; uninstall one of them")
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
                missing=f"not tried: it has to be told {', '.join(required)}",
            )
        hooks = loading.manager(loading.make(plugin))
        implemented = tuple(
            hook for hook in hookspecs.__all__ if getattr(hooks.hook, hook).get_hookimpls()
        )
        tool = hooks.hook.probe()
        missing = (
            (hooks.hook.missing_tool() or "its program is missing")
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

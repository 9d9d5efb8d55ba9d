"""What is installed, tried out: every backend and plugin by itself, and whether its profiler is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pluggy

from gpuprof import _config, _plugins, hookspecs
from gpuprof._types import Tool
from gpuprof.errors import ConfigError, ToolError


@attrs.frozen
class Survey:
    """An installed backend or plugin, tried out.

    Args:
        name: of its entry point.
        version: of its distribution.
        hooks: those that it implements, in the order of `gpuprof.hookspecs`.
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
    found = _plugins.catalogue()
    owners = [(name, entry.dist) for name, entry in found.entries.items()]
    surveyed = [_try_out(name, dist.name if dist else "", dist.version if dist else "") for name, dist in owners]
    for name, distributions in found.duplicates.items():
        surveyed.append(Survey(name, ", ".join(distributions), "", error="offered twice; uninstall one of them"))
    return sorted(surveyed, key=lambda plugin: plugin.name)


def reader(name: str, settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> Callable[..., Any] | None:
    """What reads ranges from an installed backend's files; ``None`` if it cannot be loaded or has no such hook.

    Args:
        settings: the configuration of the run that has left the files, if that is known. A backend that was not the run's is made
            with its defaults; so is one whose program is not where the run had it.
        overrides: ``key.key=value``; those of other backends' sections are left out.

    Raises:
        ConfigError: `settings` or `overrides` are not valid for this backend.
    """
    overrides = [override for override in overrides if override.partition(".")[0] == name]
    own = settings.get("backend") == name
    default = {"backend": name}
    try:
        read = _read_hook(name, settings if own else default, overrides)
        elsewhere = _read_hook(name, default, overrides) if own else None
    except Exception as error:
        if isinstance(error, ConfigError) and (own or overrides):
            raise
        return None  # `gpuprof backends` says why
    if read is None or elsewhere is None:
        return read

    def read_here(path: str) -> Any:
        try:
            return read(path=path)
        except ToolError:  # the run was on another machine, and its profiler is not here; what `overrides` say holds here too
            return elsewhere(path=path)

    return read_here


def _read_hook(name: str, settings: Mapping[str, Any], overrides: Sequence[str]) -> Callable[..., Any] | None:
    plugin = _plugins.load(name, name)
    model = getattr(plugin, "Options", None)
    if isinstance(plugin, type) and model is not None:
        config = _config.load(settings, overrides=overrides, environ={})
        hooks = _plugins.manager(plugin(config.options("all", model)))
    else:
        hooks = _plugins.manager(_plugins.make(plugin))
    return hooks.hook.read_ranges if hooks.hook.read_ranges.get_hookimpls() else None


def _try_out(name: str, distribution: str, version: str) -> Survey:
    try:
        plugin = _plugins.load(name, name)
        required = _required_options(plugin)
        if required:
            marks = pluggy.PluginManager("gpuprof")
            implemented = tuple(hook for hook in hookspecs.__all__ if marks.parse_hookimpl_opts(plugin, hook) is not None)
            return Survey(name, distribution, version, implemented, missing=f"not tried: it has to be told {', '.join(required)}")
        hooks = _plugins.manager(_plugins.make(plugin))
        implemented = tuple(hook for hook in hookspecs.__all__ if getattr(hooks.hook, hook).get_hookimpls())
        tool = hooks.hook.probe()
        missing = (hooks.hook.missing_tool() or "its program is missing") if tool is None and "probe" in implemented else None
    except Exception as error:
        return Survey(name, distribution, version, error=f"{type(error).__name__}: {error}")
    return Survey(name, distribution, version, implemented, tool, missing)


def _required_options(plugin: Any) -> list[str]:
    options = getattr(plugin, "Options", None)
    return [field.name for field in attrs.fields(options) if field.default is attrs.NOTHING] if options is not None else []

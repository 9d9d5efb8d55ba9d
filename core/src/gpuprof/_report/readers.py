"""Functions that read ranges from the files of installed backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuprof._config import load
from gpuprof.backend import loading
from gpuprof.errors import ConfigError, ToolError


def reader(
    name: str, settings: Mapping[str, Any], overrides: Sequence[str] = ()
) -> Callable[..., Any] | None:
    """The hook of an installed backend that reads ranges, if it loads and has one.

    Args:
        settings: the configuration of the run, if known. Another backend than the run's gets its
            defaults; so does one whose program is no longer at its place.
        overrides: ``key.key=value``; those for other backends are ignored.

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
        # The run was on another machine whose profiler is not here; `overrides` still apply.
        except ToolError:
            return elsewhere(path=path)

    return read_here


def _read_hook(
    name: str, settings: Mapping[str, Any], overrides: Sequence[str]
) -> Callable[..., Any] | None:
    plugin = loading.load(name, name)
    model = getattr(plugin, "Options", None)
    if isinstance(plugin, type) and model is not None:
        config = load.load(settings, overrides=overrides, environ={})
        hooks = loading.manager(plugin(config.options("all", model)))
    else:
        hooks = loading.manager(loading.make(name, plugin))
    return hooks.hook.read_ranges if hooks.hook.read_ranges.get_hookimpls() else None

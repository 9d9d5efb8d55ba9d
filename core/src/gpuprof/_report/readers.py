"""Functions that read ranges from the files of installed backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpuprof._config import load
from gpuprof._config.programs import own_section
from gpuprof.backend import loading
from gpuprof.errors import ConfigError


def reader(name: str, overrides: Sequence[str] = ()) -> Callable[..., Any] | None:
    """The hook of an installed backend that reads ranges, if it loads and has one.

    It has the settings of this user's configuration. Those of the run may be anybody's, and could
    name a program.

    Args:
        overrides: ``key.key=value``; those for other backends are ignored.

    Raises:
        ConfigError: `overrides` are not valid for this backend.
    """
    overrides = [override for override in overrides if override.partition(".")[0] == name]
    try:
        return _read_hook(name, overrides)
    except Exception as error:
        if isinstance(error, ConfigError) and overrides:
            raise
        return None  # `gpuprof backends` says why


def _read_hook(name: str, overrides: Sequence[str]) -> Callable[..., Any] | None:
    plugin = loading.load(name, name)
    model = getattr(plugin, "Options", None)
    if isinstance(plugin, type) and model is not None:
        settings = {"backend": name, name: own_section(name)}
        config = load.load(settings, overrides=overrides, environ={})
        hooks = loading.manager(plugin(config.options("all", model)))
    else:
        hooks = loading.manager(loading.make(plugin))
    return hooks.hook.read_ranges if hooks.hook.read_ranges.get_hookimpls() else None

"""Functions that read ranges from the files of installed backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuprof._config import load
from gpuprof._config.programs import with_own_programs
from gpuprof.backend import loading
from gpuprof.errors import ConfigError


def reader(
    name: str, settings: Mapping[str, Any], overrides: Sequence[str] = ()
) -> Callable[..., Any] | None:
    """The hook of an installed backend that reads ranges, if it loads and has one.

    Args:
        settings: the configuration of the run, if known, of which no program is used. Another
            backend than the run's gets its defaults.
        overrides: ``key.key=value``; those for other backends are ignored.

    Raises:
        ConfigError: `settings` or `overrides` are not valid for this backend.
    """
    overrides = [override for override in overrides if override.partition(".")[0] == name]
    own = settings.get("backend") == name
    try:
        return _read_hook(
            name, with_own_programs(settings if own else {"backend": name}), overrides
        )
    except Exception as error:
        if isinstance(error, ConfigError) and (own or overrides):
            raise
        return None  # `gpuprof backends` says why


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

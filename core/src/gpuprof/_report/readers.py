"""What reads the ranges in the files of installed backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuprof._config import load
from gpuprof.backend import loading
from gpuprof.errors import ConfigError, ToolError


def reader(
    name: str, settings: Mapping[str, Any], overrides: Sequence[str] = ()
) -> Callable[..., Any] | None:
    """What reads ranges from an installed backend's files; ``None`` if it cannot be loaded or has
    no such hook.

    Args:
        settings: the configuration of the run that has left the files, if that is known. A backend
            that was not the run's is made with its defaults; so is one whose program is not where
            the run had it.
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
        # the run was on another machine, and its profiler is not here; what `overrides` say holds
        # here too
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
        hooks = loading.manager(loading.make(plugin))
    return hooks.hook.read_ranges if hooks.hook.read_ranges.get_hookimpls() else None

"""Functions that read ranges from the files of installed backends."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from gpuprof._config import load
from gpuprof._config.programs import with_own_programs
from gpuprof.backend import loading
from gpuprof.backend.boundary import provider
from gpuprof.backend.types import RangeTimes, RecordedTrack
from gpuprof.errors import ConfigError


@attrs.frozen
class Reader:
    """A backend's hooks `read_ranges` and `read_spans`.

    Args:
        read: the former.
        identity: changes with the backend's release and settings, so with what the hook may return.
    """

    read: Callable[..., list[RangeTimes] | None]
    identity: str
    read_spans: Callable[..., list[RecordedTrack] | None] | None = None


def reader(name: str, settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> Reader | None:
    """The reader of an installed backend, if it loads and has one.

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
        return _reader(name, with_own_programs(settings if own else {"backend": name}), overrides)
    except Exception as error:
        if isinstance(error, ConfigError) and (own or overrides):
            raise
        return None  # `gpuprof backends` says why


def _reader(name: str, settings: Mapping[str, Any], overrides: Sequence[str]) -> Reader | None:
    plugin = loading.load(name, name)
    model = getattr(plugin, "Options", None)
    options = None
    if isinstance(plugin, type) and model is not None:
        config = load.load(settings, overrides=overrides, environ={})
        options = config.options("all", model)
        hooks = loading.manager(plugin(options))
    else:
        hooks = loading.manager(loading.make(name, plugin))
    ranges, spans = hooks.hook.read_ranges, hooks.hook.read_spans
    if not ranges.get_hookimpls():
        return None
    identity = _identity(name, plugin, options)
    return Reader(ranges, identity, spans if spans.get_hookimpls() else None)


def _identity(name: str, plugin: object, options: object) -> str:
    distribution = provider(plugin)
    try:
        release = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        release = ""
    # a digest, as settings can hold secrets
    known = json.dumps([name, distribution, release, repr(options)])
    return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()

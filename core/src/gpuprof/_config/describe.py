"""Describes each configuration key: its path, valid values, default and help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import attrs

from gpuprof._config import sources
from gpuprof._config.dump import as_yaml
from gpuprof._config.schema import KEYS, Config, Recording, Selection
from gpuprof._config.structure import default_of, takes, unknown_key
from gpuprof.backend import loading
from gpuprof.errors import ConfigError

_TOOL_TYPES = {
    "flag": "null",
    "boolean": takes(bool),
    "integer": takes(int),
    "number": takes(float),
    "text": takes(str),
    "list": takes(list),
}
"""The wording, in docs and errors, of each type that a backend declares for its tool's keys."""


@attrs.frozen
class Key:
    """One configuration key.

    Args:
        path: dotted, from the top of the configuration; spaces separate the names of a key that
            has several names.
        takes: its valid values, worded as in errors.
        default: as YAML; ``None`` if the key is required or the tool has its own default.
        variable: the environment variable that sets it, or empty.
        where: the parts of the tool that have the key; empty if all have it.
        since: the first release of the tool that has the key; empty if all releases have it.
    """

    path: str
    takes: str
    default: str | None
    help: str
    variable: str = ""
    where: str = ""
    since: str = ""


def own_keys() -> list[Key]:
    """The keys that do not depend on the backend."""
    by_path = {key.path: key for model in (Config, Selection) for key in keys_of(model)}
    own = [attrs.evolve(by_path[name], variable=sources.variable(name)) for name in KEYS]
    after = next(number for number, key in enumerate(own, 1) if key.path == "groups")
    return [*own[:after], *keys_of(Recording, "groups.NAME."), *own[after:]]


def backend_keys(backend: str) -> list[Key]:
    """The keys of a backend's or a plugin's section, each followed by the known keys inside it."""
    return list(keys_of(loading.model_of(backend), f"{backend}."))


def find(path: str) -> list[Key]:
    """The key at a path. The name of a backend gives the keys of its section.

    A path inside a free-form mapping gives the key of that mapping.
    """
    own = {key.path: key for key in own_keys()}
    for section in sources.SECTIONS:
        path = path.removeprefix(f"{section}.")
    head, _, rest = path.partition(".")
    if head == "groups" and rest.count("."):
        rest = rest.partition(".")[2]
        of_group = own.get(f"groups.NAME.{rest}")
        return [of_group] if of_group else find(rest)
    if head in own:
        return [own[head]]
    if head not in loading.known_sections():
        raise ConfigError(f"{path}: {unknown_key(head, [*own, *loading.known_sections()])}")
    keys = backend_keys(head)
    top = {key.path.split(".")[1]: key for key in keys if key.path.count(".") == 1}
    if not rest:
        return list(top.values())
    first, _, inner = rest.partition(".")
    if first not in top:
        raise ConfigError(f"{path}: {unknown_key(first, list(top))}")
    within = f"{head}.{first}."
    return [
        key
        for key in keys
        if inner and key.path.startswith(within) and inner in key.path[len(within) :].split()
    ] or [top[first]]


def keys_of(model: type[Any], prefix: str = "") -> Iterator[Key]:
    """The keys that an attrs class declares, each followed by the keys nested in it."""
    hints = get_type_hints(model)
    for field in attrs.fields(model):
        kind, path = hints[field.name], f"{prefix}{field.name}"
        default = default_of(field)
        yield Key(
            path,
            takes(kind),
            None if default is attrs.NOTHING else as_yaml(default),
            field.metadata.get("help", ""),
        )
        for part in get_args(kind) or (kind,):
            if isinstance(part, type) and attrs.has(part) and not hasattr(part, "TAKES"):
                yield from keys_of(part, f"{path}.")
        for key in field.metadata.get("keys", ()):
            yield Key(
                f"{path}.{key.name}",
                _TOOL_TYPES.get(key.type, key.type),
                None,
                key.help,
                where=key.where,
                since=key.since,
            )

"""Writes a configuration as YAML; reading that YAML gives the same configuration."""

from __future__ import annotations

import sys
from typing import Any

import attrs
import yaml

from gpuprof._config.schema import KEYS, Config
from gpuprof._config.secrets import without_secrets
from gpuprof._config.selection import ALL_RANKS, Integers
from gpuprof._config.structure import default_of


def to_mapping(config: Config) -> dict[str, Any]:
    """The backend and all keys that differ from their defaults, in the order of declaration."""
    values: dict[str, Any] = {}
    for part in (config, config.defaults):
        for field in attrs.fields(type(part)):
            value = getattr(part, field.name)
            if field.name in KEYS and value != default_of(field):
                values[field.name] = as_written(value)
    values.update(config.flat)
    if config.section:
        values[config.backend] = config.section
    values.update(config.sections)
    return values


def shown(config: Config) -> dict[str, Any]:
    """`to_mapping`, with secrets masked."""
    values: dict[str, Any] = without_secrets(to_mapping(config), config.backend)
    return values


def dump(config: Config, with_secrets: bool = True) -> str:
    """The configuration as YAML."""
    mapping = to_mapping(config) if with_secrets else shown(config)
    # In ASCII, because PyYAML writes some Unicode line breaks as they are but reads them as
    # spaces.
    return yaml.dump(mapping, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=80)


def as_yaml(value: Any) -> str:
    """A key's value on one line.

    >>> as_yaml(ALL_RANKS), as_yaml(None), as_yaml(Integers.parse([3, "10:12"]))
    ('all', 'null', "[3, '10:12']")
    """
    text = yaml.dump(
        as_written(value),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=True,
        width=sys.maxsize,
    )
    return text.removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Writes a repeated value in full each time, instead of an anchor such as ``&id001``."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always true."""
        return True


def as_written(value: Any) -> Any:
    """A key's value as YAML and JSON write it: lists, mappings, strings, numbers."""
    if value in (ALL_RANKS, ("all",)):
        return "all"
    if isinstance(value, Integers):
        return [start if stop == start + 1 else f"{start}:{stop}" for start, stop in value.ranges]
    if attrs.has(type(value)):
        return {
            field.name: as_written(getattr(value, field.name))
            for field in attrs.fields(type(value))
        }
    return list(value) if isinstance(value, tuple) else value

"""A configuration as the YAML that gives the same configuration back."""

from __future__ import annotations

from typing import Any

import attrs
import yaml

from gpuprof._config.schema import Config
from gpuprof._config.secrets import without_secrets
from gpuprof._config.selection import ALL_RANKS, Integers


def to_mapping(config: Config) -> dict[str, Any]:
    """The keys that differ from their defaults, in the order of their declaration; the backend
    always.
    """
    found: dict[str, Any] = {}
    for part in (config, config.defaults):
        for field in attrs.fields(type(part)):
            value = getattr(part, field.name)
            default = field.default
            if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
                default = default.factory()
            if "help" in field.metadata and value != default:
                found[field.name] = _written(value)
    found.update(config.flat)
    if config.section:
        found[config.backend] = config.section
    return found


def dump(config: Config, with_secrets: bool = True) -> str:
    """The configuration as YAML."""
    mapping = to_mapping(config) if with_secrets else without_secrets(to_mapping(config))
    # In ASCII: PyYAML writes some other line breaks as they are, and reads them back as spaces.
    return yaml.dump(mapping, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes what stands in two places twice: nobody reads ``&id001`` with pleasure."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always."""
        return True


def _written(value: Any) -> Any:
    if value == ALL_RANKS:
        return "all"
    if isinstance(value, Integers):
        return [start if stop == start + 1 else f"{start}:{stop}" for start, stop in value.ranges]
    return list(value) if isinstance(value, tuple) else value

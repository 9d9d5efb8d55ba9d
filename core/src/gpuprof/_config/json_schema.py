"""JSON Schema of a configuration. Editors use it to complete and check YAML."""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from gpuprof._config.dump import as_written
from gpuprof._config.schema import (
    FLAT_KEYS,
    OWN_KEYS,
    RECORDING_KEYS,
    SELECTION_KEYS,
    Config,
    Recording,
    Selection,
)
from gpuprof._config.structure import default_of
from gpuprof.backend import loading
from gpuprof.errors import PluginError

Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    Any: {},
}


def of_configuration(models: dict[str, type[Any]]) -> Schema:
    """The schema of a whole configuration.

    Args:
        models: the attrs class of the options of each backend and plugin, by name.
    """
    sections = {name: _nullable(_of_class(model)) for name, model in models.items()}
    for name in loading.known_sections():
        sections.setdefault(name, {"type": ["object", "null"]})  # not installed, or broken
    selection = _properties(Selection, SELECTION_KEYS)
    own = _properties(Config, OWN_KEYS)
    in_groups = selection | _properties(Recording, RECORDING_KEYS) | sections
    override = {"type": ["object", "null"], "properties": in_groups}
    own["groups"]["additionalProperties"] = {**override, "additionalProperties": False}
    return {
        "$schema": _DIALECT,
        "title": "gpuprof",
        "type": "object",
        "properties": own | selection | {key: {} for key in FLAT_KEYS} | sections,
        "additionalProperties": False,
        "required": ["backend"],
    }


def of_options(name: str, model: type[Any]) -> Schema:
    """The schema of the section of one backend or plugin."""
    return {"$schema": _DIALECT, "title": name, **_of_class(model)}


def installed_models() -> dict[str, type[Any]]:
    """The attrs classes of the options of all working installed backends and plugins, by name."""
    models: dict[str, type[Any]] = {}
    for name in loading.known_sections():
        try:
            models[name] = loading.model_of(name)
        except PluginError:
            continue  # `gpuprof backends` says why
    return models


def _of_class(model: type[Any]) -> Schema:
    names = [field.name for field in attrs.fields(model)]
    required_keys = [
        field.name for field in attrs.fields(model) if default_of(field) is attrs.NOTHING
    ]
    schema: Schema = {
        "type": "object",
        "properties": _properties(model, names),
        "additionalProperties": False,
    }
    return schema | ({"required": required_keys} if required_keys else {})


def _properties(model: type[Any], names: Iterable[str]) -> Schema:
    """The schemas of a class's fields, and of their former names, which are marked deprecated."""
    hints = get_type_hints(model)
    fields = attrs.fields_dict(model)
    properties: Schema = {}
    for name in names:
        field = fields[name]
        schema = _of_type(hints[name])
        keys = {
            alias: {"description": key.help}
            for key in field.metadata.get("keys", ())
            for alias in key.name.split()
        }
        if keys:
            schema["properties"] = keys
        if default_of(field) is not attrs.NOTHING:
            schema["default"] = as_written(default_of(field))
        properties[name] = {"description": field.metadata.get("help", ""), **schema}
        for former in field.metadata.get("formerly", ()):
            properties[former] = {**properties[name], "deprecated": True}
    return properties


def _of_type(kind: Any) -> Schema:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return {"anyOf": [_of_type(part) for part in parts]}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _of_type(parts[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_type(parts[1])}
    if hasattr(kind, "SCHEMA"):
        return dict(kind.SCHEMA)
    return _of_class(kind) if attrs.has(kind) else dict(_SIMPLE[kind])


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": ["object", "null"]}

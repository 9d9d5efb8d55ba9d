"""Every key of a configuration and every option of a backend, as they are declared."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from gpuprof._config import sources
from gpuprof._config.schema import KEYS, Config, Selection
from gpuprof._config.selection import ALL_RANKS, Integers, Names, Ranks
from gpuprof._config.structure import unknown_key
from gpuprof.backend import loading
from gpuprof.errors import ConfigError

_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    Names: "a name, or a list of names",
    Ranks: 'integers and slices "start:stop", or all',
    Integers: 'integers and slices "start:stop"',
    Any: "anything",
}


@attrs.frozen
class Key:
    """A key.

    Args:
        path: dotted, from the top of the configuration.
        kind: what it takes.
        default: as it would be written; ``None`` where it must be given.
        help: what it does.
        variable: the environment variable that sets it, or empty.
    """

    path: str
    kind: str
    default: str | None
    help: str
    variable: str = ""


def own_keys() -> list[Key]:
    """The keys of every configuration, whatever its backend."""
    declared = {key.path: key for model in (Config, Selection) for key in _keys(model)}
    return [attrs.evolve(declared[name], variable=sources.variable(name)) for name in KEYS]


def backend_keys(backend: str) -> list[Key]:
    """The keys of a backend's section.

    Raises:
        PluginError: it is not installed, or broken.
    """
    return list(_keys(loading.load_backend(backend, "backend").Options, f"{backend}."))


def find(path: str) -> list[Key]:
    """The key at a path; for a backend's section all of its keys; for what is below a key that
    takes any, that key.

    Raises:
        ConfigError: there is no such key.
    """
    own = {key.path: key for key in own_keys()}
    for section in sources.SECTIONS:
        path = path.removeprefix(f"{section}.")
    head, _, rest = path.partition(".")
    if head == "groups" and rest.count("."):
        return find(rest.partition(".")[2])
    if head in own:
        return [own[head]]
    if head not in loading.known_backends():
        raise ConfigError([f"{path}: {unknown_key(head, [*own, *loading.known_backends()])}"])
    keys = {key.path: key for key in backend_keys(head)}
    if not rest:
        return list(keys.values())
    wanted = f"{head}.{rest.partition('.')[0]}"
    if wanted not in keys:
        raise ConfigError(
            [
                f"{path}: {unknown_key(rest.partition('.')[0], [key.partition('.')[2] for key in keys])}"
            ]
        )
    return [keys[wanted]]


def _keys(model: type[Any], prefix: str = "") -> Iterator[Key]:
    hints = get_type_hints(model)
    for field in attrs.fields(model):
        if "help" in field.metadata:
            yield Key(
                prefix + field.name,
                _kind(hints[field.name]),
                _default(field),
                field.metadata["help"],
            )


def _kind(hint: Any) -> str:
    if hint in _KINDS:
        return _KINDS[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin in (Union, types.UnionType):
        kinds = [_kind(one) for one in inner if one is not type(None)]
        return (
            "a value"
            if len(kinds) > 2
            else " or ".join([*kinds, *(["null"] if type(None) in inner else [])])
        )
    if origin is list:
        return "a list"
    if origin is dict:
        return "a mapping"
    return str(getattr(hint, "__name__", hint))


def _default(field: Any) -> str | None:
    if field.default is attrs.NOTHING:
        return None
    value = field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
    if value == ALL_RANKS or value == ("all",):
        return "all"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {inner}" for key, inner in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


@attrs.frozen
class OptionHelp:
    """One option, or one key inside one.

    Args:
        path: below the backend's section, such as ``args.T``; several names of one key are
            separated by spaces.
        type: of its value.
        default: as YAML would have it; empty where there is none.
        help: what it does; empty where its author did not say.
        where: what it belongs to, where not everything has it.
        since: the first release of the tool that has it; empty for all.
    """

    path: str
    type: str
    default: str
    help: str
    where: str = ""
    since: str = ""


def describe(options: type[Any], prefix: str = "") -> list[OptionHelp]:
    """The options of an attrs class, each followed by what lies inside it."""
    hints = get_type_hints(options)
    found = []
    for field in attrs.fields(options):
        kind = hints[field.name]
        path = f"{prefix}{field.name}"
        found.append(
            OptionHelp(
                path, _type(kind), _default_of_option(field), str(field.metadata.get("help", ""))
            )
        )
        for part in get_args(kind) or (kind,):
            if isinstance(part, type) and attrs.has(part):
                found += describe(part, f"{path}.")
        found += [
            OptionHelp(f"{path}.{key.name}", key.type, "", key.help, key.where, key.since)
            for key in field.metadata.get("keys", ())
        ]
    return found


def _type(kind: Any) -> str:
    """A type in the words of YAML.

    >>> _type(bool), _type(Literal["a", "b"]), _type(list[str]), _type(Union[int, None])
    ('boolean', 'a or b', 'list', 'integer or null')
    """
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(map(str, get_args(kind)))
    if origin in (Union, types.UnionType):
        return " or ".join(_type(part) for part in get_args(kind))
    kind = origin or kind
    names = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "list",
        dict: "mapping",
        type(None): "null",
    }
    return names.get(
        kind,
        "mapping"
        if attrs.has(kind)
        else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower(),
    )


def _default_of_option(field: attrs.Attribute[Any]) -> str:
    value: Any = field.default
    if value is attrs.NOTHING:
        return ""
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        value = value.factory()
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)

"""What a backend's options are, read from its class: the command line shows it, the conformance kit asks for it."""

from __future__ import annotations

import re
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs


@attrs.frozen
class OptionHelp:
    """One option, or one key inside one.

    Args:
        path: below the backend's section, such as ``args.T``; several names of one key are separated by spaces.
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
        found.append(OptionHelp(path, _type(kind), _default(field), str(field.metadata.get("help", ""))))
        for part in get_args(kind) or (kind,):
            if isinstance(part, type) and attrs.has(part):
                found += describe(part, f"{path}.")
        found += [
            OptionHelp(f"{path}.{key.name}", key.type, "", key.help, key.where, key.since) for key in field.metadata.get("keys", ())
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
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "list", dict: "mapping", type(None): "null"}
    return names.get(kind, "mapping" if attrs.has(kind) else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower())


def _default(field: attrs.Attribute[Any]) -> str:
    value: Any = field.default
    if value is attrs.NOTHING:
        return ""
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        value = value.factory()
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)

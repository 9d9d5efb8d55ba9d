"""From mappings to attrs classes, strictly, with errors that carry the key's full path. Used for our schema and for backends'."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
from cattrs.strategies import configure_union_passthrough

from gpuprof.errors import ConfigError

Model = TypeVar("Model")


class Invalid(ValueError):
    """A value that a key does not take."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"{value!r} is not valid; expected {expected}")


def make_converter() -> cattrs.Converter:
    """A converter that converts nothing silently: no string from a number, no number from a string, no unknown key."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind, expected in [(str, "a string"), (bool, "true or false"), (int, "an integer"), (float, "a number")]:
        converter.register_structure_hook(kind, _exact(kind, expected))
    converter.register_structure_hook_func(_is_choice, _choice)
    configure_union_passthrough(Union[str, bool, int, float, None], converter)
    return converter


def structure(data: object, model: type[Model], path: str = "", converter: cattrs.Converter | None = None) -> Model:
    """Make a `model`, an attrs class, of a mapping.

    Args:
        path: the full path of `data`, without a final dot.

    Raises:
        ConfigError: with every problem that there is, one line each.
    """
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise ConfigError([f"{path or 'configuration'}: {data!r} is not valid; expected a mapping"])
    try:
        return (converter or make_converter()).structure(plain(data), model)
    except (cattrs.BaseValidationError, ConfigError) as error:
        raise ConfigError(list(_problems(error, path))) from None


def plain(data: Any) -> Any:
    """`data` with every mapping as a dict and every other sequence as a list, whatever library they come from."""
    if isinstance(data, Mapping):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [plain(value) for value in data]
    return data


def unknown_key(key: object, known: Sequence[str]) -> str:
    """What to say of a key that is not known, after its path."""
    close = difflib.get_close_matches(str(key), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown key{hint} Valid: {', '.join(sorted(known))}" if hint else f"unknown key; valid: {', '.join(sorted(known))}"


def join(path: str, key: object) -> str:
    """The path of `key` below `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if str(key).startswith("["):
        return f"{path}{key}"
    return f"{path}.{key}" if path else str(key)


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _choice(value: Any, literal: Any) -> Any:
    if value not in get_args(literal):
        raise Invalid(value, " or ".join(get_args(literal)))
    return value


def _exact(kind: type, expected: str) -> Callable[[Any, type], Any]:
    def check(value: Any, _: type) -> Any:
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        raise Invalid(value, expected)

    return check


def _problems(error: BaseException, path: str) -> Iterator[str]:
    if isinstance(error, cattrs.ClassValidationError):
        nested, plain_errors = error.group_exceptions()
        for inner, note in nested:
            yield from _problems(inner, join(path, note.name))
        for other in plain_errors:
            yield from _problems(other, path)
    elif isinstance(error, cattrs.IterableValidationError):
        elements, plain_errors = error.group_exceptions()
        for inner, element in elements:
            yield from _problems(inner, join(path, element.index))
        for other in plain_errors:
            yield from _problems(other, path)
    elif isinstance(error, cattrs.ForbiddenExtraKeysError):
        known = [field.name for field in attrs.fields(error.cl)] if error.cl else []
        for key in sorted(map(str, error.extra_fields)):
            yield f"{join(path, key)}: {unknown_key(key, known)}"
    elif isinstance(error, ConfigError):
        yield from (join(path, problem) for problem in error.problems)
    elif isinstance(error, KeyError):
        yield f"{join(path, error.args[0])}: missing"
    else:
        yield f"{path}: {error}"

"""Turns mappings into attrs classes, strictly, with errors that name the key's full path."""

from __future__ import annotations

import difflib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
import cattrs

from gpuprof.backend.boundary import reason
from gpuprof.errors import ConfigError

Model = TypeVar("Model")

_DEEPEST = 64
"""The most levels of a configuration."""
_MOST_VALUES = 20_000
"""The most values of a configuration: shared ones, as aliases in YAML make them, count each time.
"""
_MOST_PROBLEMS = 100


class Invalid(ValueError):
    """An invalid value, with what would be valid."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"{shown(value)} is not valid; expected {expected}")


def shown(value: object) -> str:
    """A value in an error; a long one is cut.

    >>> shown("a" * 1000) == f"'{'a' * 95}… (1002 characters)"
    True
    """
    try:
        text = repr(value)
    except Exception:  # an integer of more digits than Python writes, or a class of the user's
        return f"this {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:96]}… ({len(text)} characters)"


@functools.cache
def _converter() -> cattrs.Converter:
    """A converter that converts nothing silently and refuses unknown keys.

    Shared, as making one takes milliseconds.
    """
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (str, bool, int, float):
        converter.register_structure_hook(kind, _exact(kind))
    # cattrs would make a list of a string's letters.
    for applies, hook in (
        (_is(Literal), _choice),
        (_is(list), _list),
        (_is(dict), _dict),
        (_is_any_scalar, _scalar),
        (_is_optional, _optional),
        (_says_what_it_takes, lambda value, kind: kind.parse(value)),
    ):
        converter.register_structure_hook_func(applies, hook)
    return converter


def takes(kind: Any) -> str:
    """The valid values of a type, in the words of YAML: for errors, help and pages alike.

    A class that reads its value with ``parse`` says its own in ``TAKES``.

    >>> takes(bool), takes(int | None), takes(Literal["light", "standard", "deep"])
    ('true or false', 'an integer or null', 'light, standard, or deep')
    >>> takes(Union[str, bool, int, float, None, list[Union[str, bool, int, float]]])
    'a string, true, false, a number, a list of these, or null'
    """
    return either(_alternatives(kind))


def either(words: Sequence[str]) -> str:
    """Alternatives as English.

    >>> either(["a"]), either(["a", "b"]), either(["a", "b", "c"])
    ('a', 'a or b', 'a, b, or c')
    """
    if len(words) < 3:
        return " or ".join(words)
    return f"{', '.join(words[:-1])}, or {words[-1]}"


_ALTERNATIVES: dict[Any, tuple[str, ...]] = {
    str: ("a string",),
    bool: ("true", "false"),
    int: ("an integer",),
    float: ("a number",),
    list: ("a list",),
    dict: ("a mapping",),
    NoneType: ("null",),
    Any: ("anything",),
}


def _alternatives(kind: Any) -> tuple[str, ...]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return tuple(map(str, parts))
    if origin in (Union, UnionType):
        several = sorted(parts, key=lambda part: part is NoneType)
        if _is_any_scalar(kind):
            several.remove(int)  # every integer is a number
        return tuple(
            word
            for part in several
            for word in (
                ("a list of these",)
                if _is_any_scalar(kind) and get_origin(part) is list
                else _alternatives(part)
            )
        )
    if _says_what_it_takes(kind):
        return tuple(kind.TAKES)
    kind = origin or kind
    if kind in _ALTERNATIVES:
        return _ALTERNATIVES[kind]
    return ("a mapping",) if attrs.has(kind) else (kind.__name__,)


def is_text(kind: Any) -> bool:
    """Whether a type takes only text, so that a variable's value needs no reading as YAML.

    >>> is_text(str | None), is_text(Literal["a", "b"]), is_text(int)
    (True, True, False)
    """
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return all(part in (str, NoneType) or get_origin(part) is Literal for part in parts)


def default_of(field: attrs.Attribute[Any]) -> Any:
    """The default of a field, made if it has a factory; `attrs.NOTHING` without one."""
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def structure(data: object, model: type[Model], path: str = "") -> Model:
    """Make a `model`, an attrs class, of a mapping.

    Args:
        path: the full path of `data`, without a final dot.

    Raises:
        ConfigError: with every problem, one line each.
    """
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise ConfigError([f"{path or 'configuration'}: {Invalid(data, 'a mapping')}"])
    try:
        return _converter().structure(plain(data), model)
    except (cattrs.BaseValidationError, ConfigError) as error:
        raise ConfigError(list(_problems(error, path))) from None


def plain(data: Any, path: str = "") -> Any:
    """`data` as dicts and lists, from the mappings and sequences of any library.

    Raises:
        ConfigError: with every value that cannot be read, such as a broken interpolation, that no
            file can hold, such as text with half a character, and every mapping or list that
            contains itself.
    """
    problems: list[str] = []
    found = _plain(data, path, problems, (), itertools.count())
    if problems:
        raise ConfigError(problems)
    return found


def _plain(
    data: Any, path: str, problems: list[str], above: tuple[int, ...], counted: Iterator[int]
) -> Any:
    if not isinstance(data, (Mapping, Sequence)) or isinstance(data, (str, bytes, bytearray)):
        problem = _scalar_problem(data)
        if problem:
            problems.append(f"{path or 'configuration'}: {problem}")
        return data
    if id(data) in above or len(above) > _DEEPEST:
        problems.append(
            f"{path or 'configuration'}: contains itself, or is nested more than "
            f"{_DEEPEST} levels deep"
        )
        return None
    copy: dict[Any, Any] = {}
    for key in data if isinstance(data, Mapping) else range(len(data)):
        if next(counted) >= _MOST_VALUES or len(problems) >= _MOST_PROBLEMS:
            raise ConfigError(
                problems
                or [f"{path or 'configuration'}: more than {_MOST_VALUES} values; expected fewer"]
            )
        problem = _scalar_problem(key)
        below = join(path, shown(key) if problem else key)
        if problem:
            problems.append(f"{below}: {problem}")
            continue
        try:
            value = data[key]
        except Exception as error:  # whatever the library raises
            problems.append(f"{below}: {' '.join(str(error).split())}")
        else:
            copy[key] = _plain(value, below, problems, (*above, id(data)), counted)
    return copy if isinstance(data, Mapping) else list(copy.values())


def _scalar_problem(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return "this integer is not valid; expected one of at most 64 bits"
    if isinstance(value, str) and not (value.isascii() and value.isprintable()):
        try:
            value.encode()
        except UnicodeEncodeError:
            return str(Invalid(value, "text that UTF-8 can hold"))
        if "\0" in value:
            return str(Invalid(value, "text without a null character"))
    return ""


_MOST_KEYS = 10
"""Valid keys that an error lists beside a close one."""


def unknown_key(key: object, known: Sequence[str]) -> str:
    """The error for an unknown key, after its path.

    >>> unknown_key("stpes", ["steps", "ranks"])
    "unknown key; did you mean 'steps'? Valid: ranks, steps"
    """
    close = difflib.get_close_matches(str(key), known, n=1)
    valid = ", ".join(sorted(known))
    if not close:
        return f"unknown key; valid: {valid}"
    if len(known) > _MOST_KEYS:
        where = "docs/keys.md, or gpuprof config schema"
        return f"unknown key; did you mean {close[0]!r}? All keys: {where}"
    return f"unknown key; did you mean {close[0]!r}? Valid: {valid}"


def join(path: str, key: object) -> str:
    """The path of `key` below `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if str(key).startswith("["):
        return f"{path}{key}"
    return f"{path}.{key}" if path else str(key)


def _says_what_it_takes(kind: Any) -> bool:
    return hasattr(kind, "TAKES")


def _is_any_scalar(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and {str, bool, int, float} <= set(get_args(kind))


def _scalar(value: Any, kind: Any) -> Any:
    lists = [inner for inner in get_args(kind) if get_origin(inner) is list]
    if lists and isinstance(value, list):
        return _converter().structure(value, lists[0])
    if isinstance(value, (str, bool, int, float)) or (
        value is None and type(None) in get_args(kind)
    ):
        return value
    raise Invalid(value, takes(kind))


def _is_optional(kind: Any) -> bool:
    return (
        get_origin(kind) in (Union, UnionType)
        and NoneType in get_args(kind)
        and len(get_args(kind)) == 2
    )


def _optional(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    (inner,) = (part for part in get_args(kind) if part is not NoneType)
    try:
        return _converter().structure(value, inner)
    except Invalid:
        raise Invalid(value, takes(kind)) from None


def _is(container: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) is container


def _choice(value: Any, literal: Any) -> Any:
    choices = get_args(literal)
    if not isinstance(value, str) or value not in choices:
        raise Invalid(value, takes(literal))
    return value


def _list(value: Any, kind: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Invalid(value, takes(list))
    return list(_each(dict(enumerate(value)), get_args(kind)[0]).values())


def _dict(value: Any, kind: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise Invalid(value, takes(dict))
    wrong = [
        f"{join('', key)}: {Invalid(key, 'a string as the key')}"
        for key in value
        if not isinstance(key, str)
    ]
    if wrong:
        raise ConfigError(wrong)
    return _each(value, get_args(kind)[1])


def _each(values: dict[Any, Any], kind: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    problems: list[str] = []
    for key, value in values.items():
        try:
            made[key] = _converter().structure(value, kind)
        except Exception as error:
            problems += _problems(error, join("", key))
    if problems:
        raise ConfigError(problems)
    return made


def _exact(kind: type) -> Callable[[Any, type], Any]:
    def check(value: Any, _: type) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            raise Invalid(value, takes(kind))
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        raise Invalid(value, takes(kind))

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
        message = reason(error)
        # of attrs' own validators, which name the field; others may say what they want
        named = re.match(r"(?:Length of )?'(\w+)' must ", message)
        yield f"{join(path, named[1]) if named else path}: {message}"

"""Turns mappings into attrs classes, strictly, with errors that name the key's full path."""

from __future__ import annotations

import difflib
import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs

from gpuprof.errors import ConfigError

Model = TypeVar("Model")

_DEEPEST = 64
"""Maximum nesting depth of a configuration."""
_MOST_VALUES = 20_000
"""Maximum values of a configuration. A value shared by YAML aliases counts each time."""
_MOST_PROBLEMS = 100


class Invalid(ValueError):
    """An invalid value, with what would be valid."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"{shown(value)} is not valid; expected {expected}")


def shown(value: object) -> str:
    """A value as an error shows it, cut if it is long.

    >>> shown("a" * 1000) == f"'{'a' * 95}… (1002 characters)"
    True
    """
    try:
        text = repr(value)
    except Exception:  # an integer too long for `repr`, or a user's class
        return f"this {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:96]}… ({len(text)} characters)"


def takes(kind: Any) -> str:
    """The valid values of a type in YAML's terms, for errors, help and docs alike.

    A class that reads its value with ``parse`` lists its valid values in ``TAKES``.

    >>> takes(bool), takes(int | None), takes(Literal["light", "standard", "deep"])
    ('true or false', 'an integer or null', 'light, standard, or deep')
    >>> takes(Union[str, bool, int, float, None, list[Union[str, bool, int, float]]])
    'a string, true, false, a number, a list of these, or null'
    """
    return either(_alternatives(kind))


def either(words: Sequence[str]) -> str:
    """Join alternatives into an English list.

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
    if hasattr(kind, "TAKES"):
        return tuple(kind.TAKES)
    kind = origin or kind
    if kind in _ALTERNATIVES:
        return _ALTERNATIVES[kind]
    return ("a mapping",) if attrs.has(kind) or is_typeddict(kind) else (kind.__name__,)


def is_text(kind: Any) -> bool:
    """Whether a type accepts only text, so a variable's value is not parsed as YAML.

    >>> is_text(str | None), is_text(Literal["a", "b"]), is_text(int)
    (True, True, False)
    """
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return all(part in (str, NoneType) or get_origin(part) is Literal for part in parts)


def default_of(field: attrs.Attribute[Any]) -> Any:
    """The default of a field, created by its factory if any; `attrs.NOTHING` if required."""
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def structure(data: object, model: type[Model], path: str = "") -> Model:
    """Make an instance of the attrs class `model` from a mapping.

    Args:
        path: the full path of `data`, without a final dot.
    """
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or 'configuration'}: {Invalid(data, 'a mapping')}")
    checker = Checker()
    instance: Model = checker.check(plain(data), model, path)
    if checker.problems:
        raise ConfigError(checker.problems)
    return instance


def plain(data: Any, path: str = "") -> Any:
    """Copy the mappings and sequences of any library into dicts and lists.

    Raises:
        ConfigError: lists every value that cannot be read, such as a broken interpolation; every
            value that a file cannot hold, such as text with half a character; and every mapping or
            list that contains itself.
    """
    problems: list[str] = []
    copy = _plain(data, path, problems, (), itertools.count())
    if problems:
        raise ConfigError(problems)
    return copy


def _plain(
    data: Any, path: str, problems: list[str], above: tuple[int, ...], counter: Iterator[int]
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
        if next(counter) >= _MOST_VALUES or len(problems) >= _MOST_PROBLEMS:
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
            copy[key] = _plain(value, below, problems, (*above, id(data)), counter)
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
"""Maximum valid keys that an error lists in addition to its suggestion."""


def unknown_key(key: object, valid_keys: Sequence[str]) -> str:
    """The error for an unknown key, without the path in front.

    >>> unknown_key("stpes", ["steps", "ranks"])
    "unknown key; did you mean 'steps'? Valid: ranks, steps"
    """
    close = difflib.get_close_matches(str(key), valid_keys, n=1)
    valid = ", ".join(sorted(valid_keys))
    if not close:
        return f"unknown key; valid: {valid}"
    if len(valid_keys) > _MOST_KEYS:
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


def _is_any_scalar(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and {str, bool, int, float} <= set(get_args(kind))


class Checker:
    """Checks values that come from YAML or JSON against types, and converts nothing silently.

    Supports the types that declare a configuration and the files of a run: attrs classes, typed
    dictionaries, lists, mappings, unions, literals, scalars, and classes that read their value with
    ``parse``.

    Attributes:
        problems: the problems of the values checked so far, one line each, beginning with the path.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def check(self, value: Any, kind: Any, path: str, words: Any = None) -> Any:
        """Return the value as an instance of `kind`. The result is meaningless after a new problem.

        Args:
            words: the type that an error names instead of `kind`.
        """
        origin, parts = get_origin(kind), get_args(kind)
        if hasattr(kind, "TAKES"):
            try:
                return kind.parse(value)
            except Invalid:
                pass
            except Exception as error:
                self._add(error, path)
                return None
        elif origin in (Union, UnionType):
            return self._check_union(value, kind, path)
        elif origin is list and isinstance(value, list):
            return [
                self.check(item, parts[0], join(path, position))
                for position, item in enumerate(value)
            ]
        elif origin is dict and isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    self.problems.append(
                        f"{join(path, key)}: {Invalid(key, 'a string as the key')}"
                    )
            return {key: self.check(item, parts[1], join(path, key)) for key, item in value.items()}
        elif isinstance(value, dict) and (attrs.has(kind) or is_typeddict(kind)):
            return self._check_fields(value, kind, path)
        elif kind is Any or self.fits(value, kind):
            return float(value) if kind is float else value
        self.problems.append(f"{path}: {Invalid(value, takes(words or kind))}")
        return None

    def fits(self, value: Any, kind: Any) -> bool:
        """Whether a value has the type `kind`, which is a scalar, a literal or a plain class."""
        if get_origin(kind) is Literal:
            return isinstance(value, str) and value in get_args(kind)
        if isinstance(value, bool) or not isinstance(kind, type):
            return kind is bool
        if is_typeddict(kind):  # a mapping has been checked key by key
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return isinstance(value, (int, float) if kind is float else kind)

    def _check_union(self, value: Any, kind: Any, path: str) -> Any:
        if value is None and NoneType in get_args(kind):
            return None
        own = [f"{path}: {Invalid(value, takes(kind))}"]
        problems = own
        for part in get_args(kind):
            if part is not NoneType:
                trial = type(self)()
                result = trial.check(value, part, path, kind)
                if not trial.problems:
                    return result
                # a problem inside a list says more than that the list is none of the other types
                problems = trial.problems if problems == own else problems
        self.problems += problems
        return None

    def _check_fields(self, data: dict[str, Any], model: Any, path: str) -> Any:
        fields = _fields(model)
        values = {}
        for name, (kind, is_required) in fields.items():
            before = len(self.problems)
            if name in data:
                value = self.check(data[name], kind, join(path, name))
                if len(self.problems) == before:
                    values[name] = value
            elif is_required:
                self.problems.append(f"{join(path, name)}: missing")
        if is_typeddict(model):
            return {**data, **values}
        for key in sorted(map(str, data.keys() - fields.keys())):
            self.problems.append(f"{join(path, key)}: {unknown_key(key, list(fields))}")
        if any(is_required and name not in values for name, (_, is_required) in fields.items()):
            return None
        try:  # even if some values are wrong: the class may refuse others
            return model(**{name.lstrip("_"): value for name, value in values.items()})
        except Exception as error:
            self._add(error, path)

    def _add(self, error: Exception, path: str) -> None:
        """Add the problems that a class raised about its values."""
        if isinstance(error, ConfigError):
            self.problems += [join(path, problem) for problem in error.problems]
        else:
            from gpuprof.backend.boundary import reason  # slow to import

            message = reason(error)
            # Only attrs' own validators begin with the field's name.
            field_name = re.match(r"(?:Length of )?'(\w+)' must ", message)
            self.problems.append(f"{join(path, field_name[1]) if field_name else path}: {message}")


@functools.cache
def _fields(model: Any) -> dict[str, tuple[Any, bool]]:
    """The type of each field of a class and whether the field is required, by name."""
    hints = get_type_hints(model)
    if is_typeddict(model):
        return {name: (kind, name in model.__required_keys__) for name, kind in hints.items()}
    return {
        field.name: (hints.get(field.name, Any), field.default is attrs.NOTHING)
        for field in attrs.fields(model)
        if field.init
    }

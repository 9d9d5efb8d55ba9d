"""Selections of steps, ranks, groups and nodes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import attrs

from gpuprof._config.structure import Invalid, either, join, takes, unknown_key
from gpuprof.backend.types import Window, Windows
from gpuprof.errors import ConfigError

MAX_WINDOWS = 10_000
_LONGEST = 160
"""Maximum bytes of a group's name. File names add rank, start and extensions, up to 255 bytes."""
_BACKWARDS = "its start is not below its stop"
_ENTRY_SCHEMA: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": "[0-9]"},
]
_ENTRY = ("an integer of at least 0", 'a slice "start:stop" (stop exclusive)')


@attrs.frozen
class Integers:
    """Integers of at least 0, as ascending ranges that do not overlap.

    Args:
        ranges: pairs of start and exclusive stop, sorted and merged.
    """

    TAKES: ClassVar[tuple[str, ...]] = (*_ENTRY, "a list of these")
    SCHEMA: ClassVar[dict[str, Any]] = {
        "anyOf": [*_ENTRY_SCHEMA, {"type": "array", "items": {"anyOf": _ENTRY_SCHEMA}}]
    }

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, number: int) -> bool:
        return any(start <= number < stop for start, stop in self.ranges)

    @property
    def count(self) -> int:
        """How many there are; `len` is limited to 2**63."""
        return sum(stop - start for start, stop in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for start, stop in self.ranges:
            yield from range(start, stop)

    def up_to(self, most: int) -> list[int]:
        """The first `most` integers."""
        return list(itertools.islice(self, most))

    @classmethod
    def parse(cls, entries: object) -> Integers:
        """Read a list of integers and slices, or a single one.

        >>> list(Integers.parse([7, "2:4", 3]))
        [2, 3, 7]
        """
        if isinstance(entries, str) and "," in entries:  # on a command line, without brackets
            return cls.of_text(entries)
        if not isinstance(entries, (list, tuple)):
            entries = [entries]
        pairs, problems = [], []
        for position, entry in enumerate(entries):
            try:
                pairs.append(_pair(entry))
            except Invalid as error:
                problems.append(f"{join('', position)}: {error}")
        if problems:
            raise ConfigError(problems)
        return cls.merged(pairs)

    @classmethod
    def of_text(cls, text: str) -> Integers:
        """Read integers and slices, separated by commas.

        >>> list(Integers.of_text("7, 2:4"))
        [2, 3, 7]
        """
        parts = map(str.strip, text.split(","))
        return cls.parse(
            [int(part) if part.isascii() and part.isdigit() else part for part in parts]
        )

    @classmethod
    def merged(cls, pairs: Iterable[tuple[int, int]]) -> Integers:
        """The integers of ranges in any order; ranges may overlap."""
        ranges: list[tuple[int, int]] = []
        for start, stop in sorted(pairs):
            if ranges and start <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(stop, ranges[-1][1]))
            else:
                ranges.append((start, stop))
        return cls(tuple(ranges))


def _pair(entry: Any) -> tuple[int, int]:
    if isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0:
        return entry, entry + 1
    if isinstance(entry, str):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*:\s*([0-9]{1,18})\s*", entry)
        if match and int(match[1]) < int(match[2]):
            return int(match[1]), int(match[2])
        if match:
            raise Invalid(entry, f"{_ENTRY[1]}; this one holds nothing, as {_BACKWARDS}")
    raise Invalid(entry, either(_ENTRY))


def windows(steps: Integers | None, continuous: bool) -> Windows:
    """The capture windows: one for each step, or one for the worker's whole life without `steps`.

    `continuous` joins adjacent steps.

    >>> [window.label for window in windows(Integers.parse([2, 5, 6]), continuous=False)]
    ['step-2', 'step-5', 'step-6']
    >>> [window.label for window in windows(Integers.parse([2, 5, 6]), continuous=True)]
    ['step-2', 'steps-5-6']
    """
    if steps is None:
        return (Window(1, None, None),)
    pairs = steps.ranges if continuous else [(step, step + 1) for step in steps]
    return tuple(Window(number, start, stop) for number, (start, stop) in enumerate(pairs, 1))


def matches(name: str, patterns: tuple[str, ...] | None) -> bool:
    """Whether any shell wildcard matches, ignoring case.

    ``all`` matches everything, ``None`` nothing.

    >>> matches("ActorGroup", ("actor*",)), matches("Actor", ("ActorGroup",))
    (True, False)
    >>> matches("x", ("all",)), matches("x", None)
    (True, False)
    """
    return bool(Patterns(patterns or ()).matching(name))


def group_problem(name: object) -> str:
    """Why a worker group cannot have this name, which file names contain; empty if it can."""
    if not isinstance(name, str) or not re.fullmatch(r"[^/\0.{}][^/\0{}]*", name):
        return str(Invalid(name, "a name without / { } that does not start with a dot"))
    if len(name.encode(errors="replace")) > _LONGEST or not name.isprintable():
        rule = f"a printable name of at most {_LONGEST} bytes: it is a part of files' names"
        return str(Invalid(name, rule))
    return ""


class Patterns:
    """Names and shell wildcards, compiled to match many names quickly."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._names: dict[str, list[int]] = {}
        self._wildcards: list[tuple[int, str]] = []
        for position, pattern in enumerate(patterns):
            lower = "*" if pattern.lower() == "all" else pattern.lower()
            if any(sign in lower for sign in "*?["):
                self._wildcards.append((position, lower))
            else:
                self._names.setdefault(lower, []).append(position)

    def matching(self, name: str) -> list[int]:
        """The positions of the patterns that match the name, ascending."""
        lower = name.lower()
        positions = [
            position for position, wildcard in self._wildcards if fnmatchcase(lower, wildcard)
        ]
        return sorted(positions + self._names.get(lower, []))


class Names(tuple[str, ...]):
    """Names or shell wildcards."""

    __slots__ = ()
    TAKES: ClassVar[tuple[str, ...]] = ("a name", "names separated by commas", "a list of names")
    SCHEMA: ClassVar[dict[str, Any]] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    }

    @classmethod
    def parse(cls, value: object) -> Names:
        """Read names from a string, separated by commas, or from a list."""
        if isinstance(value, str) and value.strip():
            return cls(filter(None, map(str.strip, value.split(","))))
        if not isinstance(value, list):
            raise Invalid(value, takes(cls))
        wrong = [
            f"{join('', position)}: {Invalid(name, 'a name')}"
            for position, name in enumerate(value)
            if not isinstance(name, str) or not name.strip()
        ]
        if wrong:
            raise ConfigError(wrong)
        return cls(value)


class Ranks(Integers):
    """Integers that are ranks, or all ranks."""

    __slots__ = ()
    TAKES = ("all", *Integers.TAKES)
    SCHEMA: ClassVar[dict[str, Any]] = {"anyOf": [{"const": "all"}, *Integers.SCHEMA["anyOf"]]}

    @classmethod
    def parse(cls, entries: object) -> Integers:
        """Read ``all``, or a list as `Integers.parse` does."""
        if isinstance(entries, str) and entries.lower() == "all":
            return ALL_RANKS
        return super().parse(entries)


INSTRUMENTS = ("ray", "torch", "queue")
"""Libraries whose waits gpuprof can mark without a change to the job's code."""


class Instruments(Names):
    """Some of `INSTRUMENTS`."""

    __slots__ = ()
    TAKES = (f"names of {', '.join(INSTRUMENTS)}, as a list or separated by commas",)
    SCHEMA: ClassVar[dict[str, Any]] = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"enum": list(INSTRUMENTS)}}]
    }

    @classmethod
    def parse(cls, value: object) -> Instruments:
        """Read names as `Names.parse` does; each must be one of `INSTRUMENTS`."""
        names = super().parse(value)
        problems = [
            f"{join('', position)}: {Invalid(name, either(INSTRUMENTS))}"
            for position, name in enumerate(names)
            if name not in INSTRUMENTS
        ]
        if problems:
            raise ConfigError(problems)
        return cls(dict.fromkeys(names))


_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@attrs.frozen
class Ledgers:
    """Whether processes write ledgers, and how large ledgers may become.

    Args:
        bytes_per_step: the limit for one process and step, in bytes.
        total: the limit for all processes of the run on a node together, in bytes.
    """

    TAKES: ClassVar[tuple[str, ...]] = (
        "true",
        "false",
        "a mapping of enabled, bytes_per_step and total",
    )

    enabled: bool = True
    bytes_per_step: int = 3_000
    total: int = 64_000_000

    @classmethod
    def parse(cls, value: object) -> Ledgers:
        """Read true, false, or a mapping. A size in the mapping may have a unit."""
        if isinstance(value, bool):
            return cls(enabled=value)
        if not isinstance(value, dict):
            raise Invalid(value, takes(cls))
        keys = ("enabled", "bytes_per_step", "total")
        problems, sizes = [], {}
        for key, setting in value.items():
            if key not in keys:
                problems.append(f"{key}: {unknown_key(key, keys)}")
                continue
            if key == "enabled":  # run.json writes the key this way
                if not isinstance(setting, bool):
                    problems.append(f"{key}: {Invalid(setting, 'true or false')}")
                continue
            try:
                sizes[key] = _size(setting)
            except Invalid as error:
                problems.append(f"{key}: {error}")
        if problems:
            raise ConfigError(problems)
        return cls(value.get("enabled", True), **sizes)


def _size(value: object) -> int:
    """Bytes from an integer or from text with a unit.

    >>> _size(3000), _size("3KB"), _size("1.5 MB")
    (3000, 3000, 1500000)
    """
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(KB|MB|GB|)", str(value).strip())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not size:
        raise Invalid(value, "a number of bytes above 0, such as 3000, 3KB or 64MB")
    return size


ALL_RANKS = Ranks(((0, 2**63),))

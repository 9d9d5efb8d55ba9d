"""Reads settings from YAML files, mappings, environment variables, and Hydra-style overrides."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import yaml

from gpuprof._config.structure import plain, shown
from gpuprof.errors import ConfigError

PREFIX = "GPUPROF_"
OTHER_VARIABLES = ("CONFIG", "SYSTEM", "RUN", "WORKER", "TIMING")
"""gpuprof's variables that do not set a key."""
SECTIONS = ("cluster.profiling", "profiling")
"""Where a larger configuration may hold gpuprof's section."""
_LARGEST = 2**20
"""Maximum characters of a file. PyYAML is slow: it reads about ten thousand lines a second."""


@attrs.frozen
class Source:
    """Where a configuration came from.

    Args:
        path: the full path of the mapping that holds the configuration.
        paths: the full path of each key, dotted, that came from another source.
        notes: each change that gpuprof made to the user's settings, and why.
        workers: the system's known worker groups, as `gpuprof.plan` takes them.
        file: the file with all keys that `paths` does not name; empty for a mapping.
        off: why a system's settings profile nothing, in that system's words; empty if they profile
            something.
        complete: whether the system has no worker groups besides `workers`.
    """

    path: str = ""
    paths: Mapping[str, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    workers: Mapping[str, Any] = attrs.field(factory=dict)
    file: str = ""
    off: str = ""
    complete: bool = True

    def key(self, name: str, group: str = "") -> str:
        """The full path of a key without the file, as reasons in plans and receipts name it.

        Args:
            group: the group in question; a system may have a different path for each group.

        >>> Source("cluster.profiling", file="job.yaml").key("steps")
        'cluster.profiling.steps'
        >>> Source("", {"groups.critic.ranks": "critic.profiler.ranks"}).key("ranks", "critic")
        'critic.profiler.ranks'
        """
        own = self.paths.get(f"groups.{group}.{name}") or self.paths.get(name)
        return own or (f"{self.path}.{name}" if self.path else name)

    def where(self, problem: str) -> str:
        """Replace the key at the start of a problem, or a key alone, by its full path.

        >>> source = Source("cluster.profiling", {"steps": "GPUPROF_STEPS"})
        >>> source.where("steps[1]: -3 is not valid")
        'GPUPROF_STEPS[1]: -3 is not valid'
        """
        for key in sorted(self.paths, key=len, reverse=True):
            if problem.startswith(key) and problem[len(key) :][:1] in ("", ".", ":", "["):
                return self.paths[key] + problem[len(key) :]
        inside = f"{self.path}.{problem}" if self.path else problem
        return f"{self.file}: {inside}" if self.file else inside


class _Loader(yaml.SafeLoader):
    """YAML without duplicate keys, in which ``2:4`` is a string.

    YAML 1.1 reads ``2:4`` as a number in base 60; YAML 1.2 does not. An integer of more than 64
    bits stays text, which every key for numbers refuses.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception:  # PyYAML's constructors may raise any exception
            text = repr(node.value)[:80] if isinstance(node, yaml.ScalarNode) else "this"
            raise yaml.constructor.ConstructorError(
                None, None, f"{text} is not valid as {node.tag}", node.start_mark
            ) from None


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:int"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)$"),
    list("-+0123456789"),
)


def _no_duplicates(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in keys and key.tag != "tag:yaml.org,2002:merge":
            raise yaml.constructor.ConstructorError(
                None, None, f"duplicate key {key.value!r}", key.start_mark
            )
        keys.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node)


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | str:
    if len(node.value) > 100:  # Python may refuse to convert so many digits
        return str(node.value)
    number: int = yaml.SafeLoader.construct_yaml_int(loader, node)
    return number if number.bit_length() <= 64 else str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:map", _no_duplicates)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def parse_yaml(text: str) -> Any:
    """The value of a YAML document.

    >>> parse_yaml("[3, 10:12, 0x10]")
    [3, '10:12', 16]
    """
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None


def parse_value(text: str) -> Any:
    """A value on a command line or in a variable: YAML, or else the text itself.

    >>> parse_value("[3, 5]"), parse_value("*policy*")
    ([3, 5], '*policy*')
    """
    try:
        return parse_yaml(text)
    except yaml.YAMLError:
        return text


def read_file(path: str | os.PathLike[str]) -> Any:
    """The content of a YAML file.

    If the file has interpolations (``${…}``), the result is an OmegaConf object, which resolves
    them on access.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ConfigError(
                f"{path}: has more than {_LARGEST} characters; expected a configuration"
            )
        data = parse_yaml(text)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; expected a YAML file"
        ) from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from None
    if "${" not in text or not isinstance(data, dict):
        return data
    try:
        from omegaconf import OmegaConf
    except ImportError:
        raise ConfigError(
            f"{path}: interpolations (${{…}}) need OmegaConf: pip install omegaconf"
        ) from None
    try:
        return OmegaConf.create(data)
    except Exception as error:  # OmegaConf's errors have no common base class
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def find(data: Any, path: str) -> tuple[bool, Any]:
    """Whether a dotted path exists, and its value.

    Reads no values elsewhere, because some may not be resolvable here.

    >>> find({"cluster": {"profiling": None}}, "cluster.profiling")
    (True, None)
    >>> find({"cluster": 3}, "cluster.profiling")
    (False, None)
    """
    for key in path.split("."):
        try:
            if not isinstance(data, Mapping) or key not in data:
                return False, None
            data = data[key]
        except Exception as error:
            raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    return True, data


def has(data: Any, path: str) -> bool:
    """Whether a dotted path exists or may exist: a value that cannot be resolved counts."""
    try:
        return find(data, path)[0]
    except ConfigError:
        return True


def pick(data: Any, paths: Iterable[str]) -> dict[str, Any]:
    """A plain mapping with only the values at the given dotted paths.

    >>> pick({"a": {"b": 1, "c": 2}, "d": 3}, ["a.b", "x"])
    {'a': {'b': 1}}
    """
    selection: dict[str, Any] = {}
    problems: list[str] = []
    for path in paths:
        try:
            exists, value = find(data, path)
            if exists:
                parents, _, key = path.rpartition(".")
                below = selection
                for parent in parents.split(".") if parents else ():
                    below = below.setdefault(parent, {})
                below[key] = plain(value, path)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return selection


def section(data: Any) -> tuple[Any, str]:
    """The configuration in `data` and its path: one of `SECTIONS`, or all of `data`."""
    if not isinstance(data, Mapping) or "backend" in data:
        return data, ""
    sections = {path: value for path in SECTIONS for exists, value in [find(data, path)] if exists}
    if len(sections) > 1:
        raise ConfigError(f"{' and '.join(sections)}: both are set; keep one of them")
    for path, value in sections.items():
        return value, path
    return data, ""


def with_overrides(data: Any, overrides: Sequence[str]) -> Any:
    """Apply overrides to a mapping of any library; interpolations see the new values."""
    if not overrides:
        return data
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is None or not isinstance(data, omegaconf.DictConfig):
        return override(plain(data) or {}, overrides, ())
    raw = omegaconf.OmegaConf.to_container(data, resolve=False)
    return omegaconf.OmegaConf.create(override(raw, overrides, ()))


def override(
    data: dict[str, Any], overrides: Iterable[str], sections: Iterable[str] = SECTIONS
) -> dict[str, Any]:
    """Apply overrides in Hydra's form to `data`.

    ``key.key=value``, optionally after ``+`` or ``++``, sets a key; ``~key`` removes one.

    Args:
        data: a plain mapping; it is not modified.
        overrides: the overrides. Values are YAML; a key may begin with the path of `data`.

    >>> override({"steps": [1]}, ["+cluster.profiling.steps=[3,10]", "nsight.options.t=cuda,nvtx"])
    {'steps': [3, 10], 'nsight': {'options': {'t': 'cuda,nvtx'}}}
    """
    problems: list[str] = []
    for text in overrides:
        try:
            data = _override(data, text, sections)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return data


def overridden(text: str, sections: Iterable[str] = SECTIONS) -> list[str]:
    """The keys in the path that an override sets, without the path of gpuprof's section.

    >>> overridden("+cluster.profiling.nsight.preset=light")
    ['nsight', 'preset']
    """
    keys = text.lstrip("+~").partition("=")[0].strip().split(".")
    for path in sections:
        parts = path.split(".")
        if keys[: len(parts)] == parts and len(keys) > len(parts):
            return keys[len(parts) :]
    return keys


def _override(data: dict[str, Any], text: str, sections: Iterable[str]) -> dict[str, Any]:
    removes = text.startswith("~")
    _, sign, value = text.partition("=")
    keys = overridden(text, sections)
    if not all(keys) or (not sign and not removes):
        raise ConfigError(
            f"{shown(text)} is not valid as an override; expected key.key=value, +key=value or ~key"
        )
    new = parse_value(value) if value.strip() else ""  # as Hydra; YAML would read null
    copy = below = dict(data)
    for position, key in enumerate(keys[:-1]):
        inner = below.get(key)
        if inner is not None and not isinstance(inner, dict):
            raise ConfigError(
                f"{'.'.join(keys[: position + 1])}: {shown(inner)} is not a mapping, so "
                f"{shown(text)} cannot be applied"
            )
        below[key] = dict(inner or {})
        below = below[key]
    if not removes:
        below[keys[-1]] = new
    elif keys[-1] in below:
        del below[keys[-1]]
    else:
        raise ConfigError(f"{'.'.join(keys)}: not set, so {shown(text)} cannot remove it")
    return copy


def from_environment(
    environ: Mapping[str, str], keys: Mapping[str, bool], switches: Collection[str] = ()
) -> dict[str, Any]:
    """The values of keys set by variables, which are named ``GPUPROF_`` and the key in capitals.

    An empty variable sets nothing.

    Args:
        keys: whether the value is text, for each valid key. Other values are YAML, in which commas
            make a list even without brackets.
        switches: the keys that are true or false; these also accept 0 and 1.

    >>> environ = {"GPUPROF_STEPS": "3,10:12", "GPUPROF_BACKEND": "nsight"}
    >>> from_environment(environ, {"steps": False, "backend": True})
    {'steps': [3, '10:12'], 'backend': 'nsight'}
    """
    key_of = {key.upper(): key for key in keys}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in environ.items():
        suffix = name[len(PREFIX) :]
        if not name.startswith(PREFIX) or not text or suffix in OTHER_VARIABLES:
            continue
        if suffix not in key_of:
            close = difflib.get_close_matches(suffix, key_of, n=1, cutoff=0.75)
            if close:  # a dissimilar name may belong to another program
                problems.append(f"{name}: unknown variable; did you mean {PREFIX}{close[0]}?")
            continue
        key = key_of[suffix]
        if key in switches and text in ("0", "1"):
            values[key] = text == "1"
        else:
            values[key] = text if keys[key] else _parse_list(text)
    if problems:
        raise ConfigError(problems)
    return values


def _parse_list(text: str) -> Any:
    if "," in text and text.lstrip()[0] not in "[{":
        return [parse_value(part.strip()) for part in text.split(",") if part.strip()]
    return parse_value(text)


def variable(key: str) -> str:
    """The variable that sets a key.

    >>> variable("output_dir")
    'GPUPROF_OUTPUT_DIR'
    """
    return PREFIX + key.upper()

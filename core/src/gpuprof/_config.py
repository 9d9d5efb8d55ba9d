"""What the user wants: the schema, with every key's type, default and help, and reading it from YAML or a mapping."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import attrs
import cattrs
import yaml

from gpuprof import _plugins
from gpuprof._naming import template_problem
from gpuprof._selection import MAX_WINDOWS, Integers, matches
from gpuprof._structure import Invalid, join, make_converter, plain, structure, unknown_key
from gpuprof._types import option
from gpuprof.errors import ConfigError

OnError = Literal["disable", "raise"]
PrintTrees = Literal["ends", "all", "none"]


class Names(tuple[str, ...]):
    """Names or shell wildcards."""

    __slots__ = ()


class Ranks(Integers):
    """Ranks, of which there may be any number."""

    __slots__ = ()


ALL_RANKS = Ranks(((0, 2**63),))


@attrs.frozen
class Selection:
    """The keys that may differ from group to group."""

    ranks: Ranks | None = option("ranks to profile: integers and slices, or all (default); null: none", default=ALL_RANKS)
    nodes: Names | None = option("host names or wildcards to profile on, or all (default); null: none", default=Names(("all",)))
    steps: Integers | None = option("global steps to capture: integers and slices; null (default): the whole life", default=None)
    continuous: bool = option("join adjacent steps into one window", default=False)
    discrete: bool = option("make every outermost scope inside the steps a window of its own", default=False)
    discrete_labels: Names = option("which scopes, if discrete: names or wildcards", default=Names(("*",)))
    max_windows: int = option("how many windows of a worker at most, if discrete; scopes beyond are counted", default=32)
    file_name: str | None = option(
        "template of the files' names; null (default): {group}-{rank}.step-{step}, with .{label}-{occurrence} if discrete",
        default=None,
    )

    def __attrs_post_init__(self) -> None:
        if self.max_windows < 1:
            raise ConfigError([f"max_windows: {self.max_windows} is not valid; expected at least 1"])
        problem = template_problem(self.file_name) if self.file_name is not None else None
        if problem:
            raise ConfigError([f"file_name: {self.file_name!r} is not valid: {problem}"])
        if self.steps is not None and not self.continuous and self.steps.count > MAX_WINDOWS:
            raise ConfigError([f"steps: selects {self.steps.count} windows; at most {MAX_WINDOWS} are valid"])


@attrs.frozen
class Config:
    """A whole configuration. `groups` and the backends' sections stay as they were given: they are merged per group."""

    backend: str | None = option("the profiler's name, or none for timing trees only")
    enabled: bool = option("master switch", default=True)
    worker_groups: Names | None = option("worker groups to profile: names or wildcards, any case, or all; null: none", default=None)
    defaults: Selection = attrs.field(factory=Selection)
    output_dir: str = option("where the directory of each run is made", default="gpuprof-output")
    on_error: OnError = option("what a fault of the profiler does to the job: disable profiling, or raise", default="disable")
    plugins: Names = option("further plugins to load beside the backend", default=Names())
    print_trees: PrintTrees = option(
        "whose timing trees to print at the end: each group's first and last rank, all, none", default="ends"
    )
    groups: dict[str, Any] = option(
        "overrides of the selection and of the backend's section, per group name or wildcard", factory=dict
    )
    section: dict[str, Any] = attrs.field(factory=dict)
    path: str = ""

    @property
    def selects_nothing(self) -> bool:
        """Whether no worker can be profiled, whatever its group."""
        return not self.enabled or not self.worker_groups

    def selection(self, group: str) -> Selection:
        """The keys of one group: those at the top level, then every matching override in the order of the file."""
        selection = self.defaults
        for pattern, override in self.groups.items():
            if matches(group, (pattern,)):
                given = {key: value for key, value in (override or {}).items() if key in _SELECTION_KEYS}
                parsed = structure(given, Selection, join(join(self.path, "groups"), pattern), _converter())
                selection = attrs.evolve(selection, **{key: getattr(parsed, key) for key in given})
        return selection

    def options(self, group: str, model: type[Any]) -> Any:
        """The backend's options for one group: its section, overridden key by key."""
        merged = self.section
        for pattern, override in self.groups.items():
            if matches(group, (pattern,)):
                merged = _merge(merged, (override or {}).get(self.backend) or {})
        return structure(merged, model, join(self.path, self.backend or "none"))


_SELECTION_KEYS = tuple(field.name for field in attrs.fields(Selection))
_OWN_KEYS = tuple(field.name for field in attrs.fields(Config) if field.name not in ("defaults", "section", "path"))
KEYS = (*_OWN_KEYS, *_SELECTION_KEYS)
DISABLED = Config(backend="none", enabled=False)


def load(source: str | os.PathLike[str] | Mapping[str, Any] | None, path: str = "") -> Config:
    """Read a configuration.

    Args:
        source: a YAML file, a mapping, or ``None`` for a configuration that profiles nothing.
        path: the full path of the mapping inside a larger configuration, for messages.

    Raises:
        ConfigError: with every problem, each with its full path.
    """
    if source is None:
        return DISABLED
    if isinstance(source, (str, os.PathLike)):
        source = _read(Path(source))
    data = plain(source)
    if not isinstance(data, dict):
        raise ConfigError([f"{path or 'configuration'}: {data!r} is not valid; expected a mapping"])
    if data.get("backend", "none") is None:
        data["backend"] = "none"
    backend = data.get("backend")
    sections = {*_plugins.known_backends(), *([backend] if isinstance(backend, str) else [])}
    own = {key: value for key, value in data.items() if key in _OWN_KEYS}
    selection = {key: value for key, value in data.items() if key in _SELECTION_KEYS}
    problems = [
        f"{join(path, key)}: {unknown_key(key, [*KEYS, *sections])}" for key in data if key not in KEYS and key not in sections
    ]
    problems += _section_problems(data.get("groups"), path, sections)
    if "backend" not in data:
        problems.append(f"{join(path, 'backend')}: missing; valid: {', '.join([*_plugins.known_backends(), 'none'])}")
        own["backend"] = "none"
    parts: dict[str, Any] = {}
    for name, values, model in [("defaults", selection, Selection), ("own", own, Config)]:
        try:
            parts[name] = structure(values, model, path, _converter())
        except ConfigError as error:
            problems += error.problems
    section = data.get(backend) if isinstance(backend, str) else None
    if section is not None and not isinstance(section, dict):
        problems.append(f"{join(path, backend)}: {section!r} is not valid; expected a mapping")
    if problems:
        raise ConfigError(problems)
    config: Config = attrs.evolve(parts["own"], defaults=parts["defaults"], section=section or {}, path=path)
    for pattern in config.groups:
        config.selection(pattern)
    return config


def _read(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError([f"{file}: cannot be read as YAML: {error}"]) from None


def _section_problems(groups: object, path: str, sections: set[Any]) -> list[str]:
    if not isinstance(groups, dict):
        return []
    problems = []
    valid = [*_SELECTION_KEYS, *sections]
    for pattern, override in groups.items():
        where = join(join(path, "groups"), pattern)
        if override is not None and not isinstance(override, dict):
            problems.append(f"{where}: {override!r} is not valid; expected a mapping")
            continue
        problems += [f"{join(where, key)}: {unknown_key(key, valid)}" for key in override or () if key not in valid]
    return problems


def _converter() -> cattrs.Converter:
    converter = make_converter()
    converter.register_structure_hook(Integers, lambda value, _: Integers.parse(value))
    converter.register_structure_hook(Ranks, _ranks)
    converter.register_structure_hook(Names, _names)
    converter.register_structure_hook_func(lambda kind: kind in (OnError, PrintTrees), _choice)
    return converter


def _ranks(value: object, _: object) -> Ranks:
    if isinstance(value, str) and value.lower() == "all":
        return ALL_RANKS
    return Ranks(Integers.parse(value).ranges)


def _names(value: object, _: object) -> Names:
    if isinstance(value, str):
        return Names((value,))
    if not isinstance(value, list):
        raise Invalid(value, "a name or a list of names")
    wrong = [f"{join('', position)}: {Invalid(name, 'a name')}" for position, name in enumerate(value) if not isinstance(name, str)]
    if wrong:
        raise ConfigError(wrong)
    return Names(value)


def _choice(value: object, literal: Any) -> Any:
    if value not in get_args(literal):
        raise Invalid(value, " or ".join(get_args(literal)))
    return value


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged

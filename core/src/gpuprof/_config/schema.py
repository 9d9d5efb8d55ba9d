"""What the user wants: the schema, with every key's type, default and help."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Literal, get_type_hints

import attrs

from gpuprof._config.selection import (
    ALL_RANKS,
    MAX_WINDOWS,
    Integers,
    Names,
    Ranks,
    converter,
    matches,
)
from gpuprof._config.sources import Source
from gpuprof._config.structure import default_of, is_text, join, structure
from gpuprof.backend.naming import template_problem
from gpuprof.backend.types import option
from gpuprof.errors import ConfigError

OnError = Literal["disable", "raise"]
PrintTrees = Literal["ends", "all", "none"]
Collect = Literal["driver", "none"]


@attrs.frozen
class Selection:
    """The keys that may differ from group to group."""

    ranks: Ranks | None = option(
        "ranks to profile: integers and slices, or all (default); null: none", default=ALL_RANKS
    )
    nodes: Names | None = option(
        "host names or wildcards to profile on, or all (default); null: none",
        default=Names(("all",)),
    )
    steps: Integers | None = option(
        "global steps to capture: integers and slices; null (default): the whole life", default=None
    )
    continuous: bool = option("join adjacent steps into one window", default=False)
    discrete: bool = option(
        "make every outermost scope inside the steps a window of its own", default=False
    )
    discrete_labels: Names = option(
        "which scopes, if discrete: names or wildcards", default=Names(("*",))
    )
    max_windows: int = option(
        "how many windows of a worker at most, if discrete; scopes beyond are counted", default=32
    )
    armed: bool = option(
        "wrap workers that capture nothing until gpuprof capture says which steps; with steps: []",
        default=False,
    )
    file_name: str | None = option(
        "template of the files' names; null (default): {group}-{rank}.step-{step}, with "
        ".{label}-{occurrence} if discrete",
        default=None,
    )
    finish_command: str | None = option(
        "command for the shell, run on the worker's node once its last window is done; it has "
        "GPUPROF_HOOK_DIRECTORY, _FILES, "
        "_GROUP, _RANK, _PID and _RUN, and its failure harms nothing",
        default=None,
    )
    finish_ranks: Ranks | None = option(
        "ranks that run it; null: those that are profiled", default=None
    )

    def __attrs_post_init__(self) -> None:
        problems = []
        if self.max_windows < 1:
            problems.append(f"max_windows: {self.max_windows} is not valid; expected at least 1")
        problem = template_problem(self.file_name) if self.file_name is not None else None
        if problem:
            problems.append(f"file_name: {self.file_name!r} is not valid: {problem}")
        if self.steps is not None and not self.continuous and self.steps.count > MAX_WINDOWS:
            problems.append(
                f"steps: selects {self.steps.count} windows; at most {MAX_WINDOWS} are valid"
            )
        if problems:
            raise ConfigError(problems)


@attrs.frozen
class Config:
    """A whole configuration.

    `groups` and the backend's section stay as they were given: they are merged per group.
    """

    backend: str = option("the profiler's name, or none for timing trees only")
    enabled: bool = option("master switch", default=True)
    worker_groups: Names | None = option(
        "worker groups to profile: names or wildcards, any case, or all; null: none", default=None
    )
    defaults: Selection = attrs.field(factory=Selection)
    output_dir: str = option("where the directory of each run is made", default="gpuprof-output")
    staging_dir: str | None = option(
        "where each node's files are until they are brought home; null: output_dir", default=None
    )
    collect: Collect = option(
        "bring files to the driver's output_dir, or none: leave them where they are",
        default="driver",
    )
    collect_every: float | None = option(
        "seconds after which finished reports are brought home during the run", default=None
    )
    max_bytes: int | None = option(
        "bytes of a run's files on a node, with which no further window is opened", default=None
    )
    on_error: OnError = option(
        "what a fault of the profiler does to the job: disable profiling, or raise",
        default="disable",
    )
    plugins: Names = option("further plugins to load beside the backend", default=Names())
    print_trees: PrintTrees = option(
        "whose timing trees to print at the end: each group's first and last rank, all, none",
        default="ends",
    )
    groups: dict[str, Any] = option(
        "overrides of the selection and of the backend's section, per group name or wildcard",
        factory=dict,
    )
    section: dict[str, Any] = attrs.field(factory=dict)
    flat: dict[str, Any] = attrs.field(factory=dict)
    source: Source = attrs.field(factory=Source, eq=False)

    def __attrs_post_init__(self) -> None:
        wrong = [
            key
            for key in ("collect_every", "max_bytes")
            if getattr(self, key) is not None and getattr(self, key) <= 0
        ]
        if wrong:
            raise ConfigError(
                [
                    f"{key}: {getattr(self, key)!r} is not valid; expected more than 0"
                    for key in wrong
                ]
            )

    @property
    def working_dir(self) -> str:
        """Where profilers write on each node; absolute."""
        return os.path.abspath(self.staging_dir or self.output_dir)

    @property
    def staged(self) -> bool:
        """Whether one node's files are to be moved from where profilers write to `output_dir`."""
        return self.staging_dir is not None and self.collect == "driver"

    @property
    def selects_nothing(self) -> bool:
        """Whether no worker can be profiled, whatever its group."""
        return not self.enabled or not self.worker_groups

    @property
    def path(self) -> str:
        """The full path of the mapping that held it."""
        return self.source.path

    def where(self, key: str) -> str:
        """The full path of a key, for messages."""
        return self.source.where(key)

    def selection(self, group: str) -> Selection:
        """The keys of one group: those at the top level, then every matching override in the order
        of the file.
        """
        selection = self.defaults
        for pattern, override in self._overrides(group):
            given = {key: value for key, value in override.items() if key in SELECTION_KEYS}
            parsed = structure_layer(given, Selection, join("groups", pattern), self.source)
            selection = attrs.evolve(selection, **{key: getattr(parsed, key) for key in given})
        return selection

    def options(self, group: str, model: type[Any]) -> Any:
        """The backend's options for one group: those beside `backend`, its section, and the
        group's, overridden key by key.
        """
        known = [field.name for field in attrs.fields(model)]
        # Those that the backend does not have are another one's: RLinf's settings are switched over
        # by changing one word.
        layers: list[tuple[str, dict[str, Any]]] = [
            ("", {key: value for key, value in self.flat.items() if key in known}),
            (self.backend, self.section),
        ]
        for pattern, override in self._overrides(group):
            layers.append((f"groups.{pattern}.{self.backend}", override.get(self.backend) or {}))
        merged: dict[str, Any] = {}
        for _, layer in layers:
            merged = _merge(merged, layer)
        try:
            return structure(merged, model)
        except ConfigError as error:
            raise ConfigError(
                [self.where(join(_origin(problem, layers), problem)) for problem in error.problems]
            ) from None

    def _overrides(self, group: str) -> list[tuple[str, dict[str, Any]]]:
        return [
            (pattern, override or {})
            for pattern, override in self.groups.items()
            if matches(group, (pattern,))
        ]


SELECTION_KEYS = tuple(field.name for field in attrs.fields(Selection))
OWN_KEYS = tuple(field.name for field in attrs.fields(Config) if "help" in field.metadata)
KEYS = (*OWN_KEYS, *SELECTION_KEYS)
FLAT_KEYS = ("options", "flags", "args", "env")
"""What may stand beside `backend` instead of in its section."""
SWITCHES = tuple(
    field.name
    for model in (Selection, Config)
    for field in attrs.fields(model)
    if isinstance(field.default, bool)
)
VERBATIM = tuple(
    name
    for model in (Selection, Config)
    for name, kind in get_type_hints(model).items()
    if name in KEYS and is_text(kind)
)
DISABLED = Config(backend="none", enabled=False)


def structure_layer(values: dict[str, Any], model: type[Any], path: str, source: Source) -> Any:
    """Make a `model` of one layer's values, with every problem that there is, each where `source`
    has it.
    """
    problems: list[str] = []
    while True:
        try:
            made = structure(values, model, "", converter())
        except ConfigError as error:
            problems += error.problems
        else:
            break
        # A model looks at its values only once all have their types: it is shown again those of
        # which nothing is said yet.
        wrong = {re.split(r"[.:\[]", problem, maxsplit=1)[0] for problem in problems}
        required = {
            field.name for field in attrs.fields(model) if default_of(field) is attrs.NOTHING
        }
        left = {key: value for key, value in values.items() if key not in wrong}
        if left == values or wrong & required:
            break
        values = left
    if problems:
        raise ConfigError([source.where(join(path, problem)) for problem in problems])
    return made


def _origin(problem: str, layers: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Which layer has the key, or the key below it, that a problem begins with: the last one that
    does.
    """
    keys: list[str] = re.split(r"[.:\[]", problem, maxsplit=2)
    having = [(path, layer[keys[0]]) for path, layer in layers if keys[0] in layer]
    exact = [
        path
        for path, value in having
        if not isinstance(value, dict) or len(keys) < 2 or keys[1] in value
    ]
    found: str = [layers[1][0], *(path for path, _ in having), *exact][-1]
    return found


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = (
            _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged

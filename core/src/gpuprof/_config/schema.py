"""The schema of a configuration: every key with its type, default and help."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_type_hints

import attrs

from gpuprof._config import OUTPUT_DIR
from gpuprof._config.selection import (
    ALL_RANKS,
    INSTRUMENTS,
    MAX_WINDOWS,
    Instruments,
    Integers,
    Ledgers,
    Names,
    Patterns,
    Ranks,
    group_problem,
)
from gpuprof._config.sources import Source
from gpuprof._config.structure import is_text, join, structure
from gpuprof.backend.naming import template_problem
from gpuprof.backend.types import option
from gpuprof.errors import ConfigError

OnError = Literal["disable", "raise"]
PrintTrees = Literal["ends", "all", "none"]
Collect = Literal["driver", "none"]
_SCOPES_PER_STEP = 32
"""Maximum discrete windows in a step unless `max_windows` is set. It guards against a scope in a
loop, because each window takes about a second."""
_NAME = r"[^\W\d]\w*"
_STEP_AT = re.compile(rf"{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*|{_NAME}\.{_NAME}")


MOST_SAMPLES = 1_000
LEAST_SILENCE = 60
"""Lower limit of the key `watchdog`, in seconds: work alone may take this long."""
USUAL_SAMPLES = 20.0
"""Default stack samples per second. benchmarks/README.md has the cost of other rates."""
MOST_WAITS = 200
"""Maximum entries of the key `waits`: `gpuprof explain` compares each scope's name with each."""


@attrs.frozen
class Selection:
    """The keys that may differ from group to group."""

    ranks: Ranks | None = option("Ranks to profile. null: none.", default=ALL_RANKS)
    nodes: Names | None = option(
        "Nodes to profile on: host names or wildcards, or all. null: none.",
        default=Names(("all",)),
    )
    steps: Integers | None = option(
        "Global steps to capture. null: each worker's whole life.", default=None
    )
    continuous: bool = option("Join adjacent steps into one window.", default=False)
    discrete: bool = option(
        "Make every outermost scope inside the steps a window of its own.", default=False
    )
    discrete_labels: Names = option(
        "Scopes that discrete captures: names or wildcards.", default=Names(("*",))
    )
    max_windows: int | None = option(
        "Maximum windows per worker with discrete; further scopes are counted, not captured. null: "
        "per planned step, 32 or the number of discrete_labels, whichever is larger.",
        default=None,
    )
    armed: bool = option(
        "Wrap workers, but capture only what gpuprof capture asks for. Needs steps: [].",
        default=False,
    )
    file_name: str | None = option(
        "Template of the reports' names. null: {group}-{rank}.step-{step}, and with discrete "
        "{group}-{rank}.step-{step}.{label}-{occurrence}.",
        default=None,
    )
    finish_command: str | None = option(
        "Shell command to run on the worker's node after its last window, with "
        "GPUPROF_HOOK_DIRECTORY, _FILES, _GROUP, _RANK, _PID and _RUN set. A failure is only "
        "reported.",
        default=None,
    )
    finish_ranks: Ranks | None = option(
        "Ranks that run finish_command. null: the profiled ones.", default=None
    )

    @property
    def most_windows(self) -> int:
        """Maximum discrete windows in a worker.

        Without `steps`, the worker's whole life counts as one step. For an armed worker, all
        capture orders together count as one step.
        """
        steps = max(1, self.steps.count) if self.steps is not None else 1
        return self.max_windows or steps * max(_SCOPES_PER_STEP, len(self.discrete_labels))

    def __attrs_post_init__(self) -> None:
        problems = []
        if self.max_windows is not None and self.max_windows < 1:
            problems.append(f"max_windows: {self.max_windows} is not valid; expected at least 1")
        problem = template_problem(self.file_name) if self.file_name is not None else None
        if problem:
            problems.append(f"file_name: {self.file_name!r} is not valid: {problem}")
        if self.steps is not None and not self.continuous and self.steps.count > MAX_WINDOWS:
            problems.append(
                f"steps: selects {self.steps.count} windows; expected at most {MAX_WINDOWS}; "
                "select fewer steps or set continuous: true"
            )
        if problems:
            raise ConfigError(problems)


@attrs.frozen
class Recording:
    """The keys in `groups` with which the user renames or leaves out groups found on Ray."""

    name: str | None = option(
        "Under gpuprof run on Ray: another name for the group of these actors or tasks; groups of "
        "one name are merged. null: their own.",
        default=None,
    )
    record: bool = option(
        "Under gpuprof run on Ray: record these actors or tasks. false: leave them out.",
        default=True,
    )

    def __attrs_post_init__(self) -> None:
        problem = "" if self.name is None else group_problem(self.name)
        if problem:
            raise ConfigError(f"name: {problem}")


def too_many_waits(patterns: Mapping[str, object]) -> str:
    """The error for a key `waits` with more than `MOST_WAITS` entries."""
    return f"{len(patterns):,} entries are not valid; expected at most {MOST_WAITS}"


@attrs.frozen
class Config:
    """A whole configuration.

    `groups`, the backend's `section` and the plugins' `sections` keep the given mappings, which are
    merged for each group when asked for.
    """

    backend: str = option("Profiler to use, or none for trees and ledgers only.")
    enabled: bool = option("Master switch. false: profile nothing.", default=True)
    worker_groups: Names | None = option(
        "Worker groups to profile: names or wildcards in any case, or all. null: none.",
        default=None,
    )
    defaults: Selection = attrs.field(factory=Selection)
    output_dir: str = option(
        "Directory of all runs; each run creates its own inside.", default=OUTPUT_DIR
    )
    staging_dir: str | None = option(
        "Directory for files on each node until they are collected. null: output_dir.", default=None
    )
    collect: Collect = option(
        "driver: bring files to the driver's output_dir; none: leave them on their nodes.",
        default="driver",
    )
    collect_every: float | None = option(
        "Seconds between collections during the run. null: collect at the end only.", default=None
    )
    max_bytes: int | None = option(
        "Bytes of a run's files on a node at which windows stop opening. null: no limit.",
        default=None,
    )
    on_error: OnError = option(
        "After a fault of the profiler: disable profiling, or raise in the job.",
        default="disable",
    )
    ledger: Ledgers = option(
        "Record when each scope began and ended, for gpuprof timeline and gpuprof explain. "
        "bytes_per_step: limit for one process and step; total: for all processes on a node.",
        default=Ledgers(),
    )
    sampling: float | None = option(
        "Samples a second of what all threads of each process run, for gpuprof explain and "
        "gpuprof report --stacks. Needs the ledger. 0: none. null: 20 with backend: none, which "
        "takes 0.3 s of a core at first, then 0.1 % of it at most; none with a profiler.",
        default=None,
    )
    waits: dict[str, str | None] = option(
        "Scopes that wait, for gpuprof explain: names or wildcards, and for whom: a worker group, "
        "barrier (all ranks of the own group), data, or * (not known). null: they work. Wins over "
        "the names that gpuprof knows. At most 200.",
        factory=dict,
    )
    instruments: Instruments | None = option(
        "Libraries whose work and waits are recorded without a mark in the job's code, at some "
        "microseconds a call: ray, torch, queue. Needs the ledger. null: all under gpuprof run, "
        "none elsewhere or with --integrate on Ray.",
        default=None,
    )
    step_at: str | None = option(
        "What a step is under gpuprof run: each outermost call of MODULE:FUNCTION or "
        "MODULE:CLASS.METHOD; on Ray also CLASS.METHOD of an actor: each call by itself, or from "
        "one call by another process to the next. "
        "null: gpuprof looks for steps.",
        default=None,
    )
    watchdog: float | None = option(
        "Seconds without the end of any scope or step after which the stacks of all processes are "
        "written to stall-1.txt, at least 60. null: 30 times the longest so far. 0: never.",
        default=None,
    )
    capture_slow: int = option(
        "Ranks to capture as soon as they are slower than their group, each beside a healthy rank. "
        "Needs the ledger and armed workers; with backend: none, slow ranks are only reported. "
        "0: none.",
        default=0,
    )
    ray_metrics: bool = option(
        "Send metrics of each step to Ray, which exports them for Prometheus.",
        default=False,
    )
    plugins: Names = option("Plugins to load besides the backend.", default=Names())
    print_trees: PrintTrees = option(
        "Timing trees to print at the end. ends: those of each group's first rank, and of a slow "
        "rank or else the last.",
        default="ends",
    )
    groups: dict[str, Any] = option(
        "Overrides of selection keys and of the backend's section, and name and record, by group "
        "name or wildcard.",
        factory=dict,
    )
    section: dict[str, Any] = attrs.field(factory=dict)
    sections: dict[str, Any] = attrs.field(factory=dict)
    flat: dict[str, Any] = attrs.field(factory=dict)
    source: Source = attrs.field(factory=Source, eq=False)
    _patterns: Patterns = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_patterns", Patterns(self.groups))
        problems = [
            f"{key}: {getattr(self, key)!r} is not valid; expected more than 0"
            for key in ("collect_every", "max_bytes")
            if getattr(self, key) is not None and getattr(self, key) <= 0
        ]
        problems += [
            f"waits.{pattern}: {whom!r} is not valid; expected a worker group, barrier, data, * or "
            "null"
            for pattern, whom in self.waits.items()
            if whom is not None and not whom.strip()
        ]
        problems += [
            f"{key}: {getattr(self, key)!r} is not valid; expected a directory, such as ."
            for key in ("output_dir", "staging_dir")
            if getattr(self, key) is not None and not getattr(self, key).strip()
        ]
        if self.sampling is not None and not 0 <= self.sampling <= MOST_SAMPLES:
            problems.append(
                f"sampling: {self.sampling:g} is not valid; expected 0 to {MOST_SAMPLES} samples a "
                "second"
            )
        elif self.sampling and not self.ledger.enabled:
            problems.append(
                f"sampling: {self.sampling:g}: not valid with ledger: false, which the samples "
                "refer to; remove one of the two"
            )
        if self.watchdog and not self.watchdog >= LEAST_SILENCE:
            problems.append(
                f"watchdog: {self.watchdog:g} is not valid; expected at least {LEAST_SILENCE} "
                "seconds, or 0 for never"
            )
        problems += self._problems_of_capture_slow()
        if len(self.waits) > MOST_WAITS:
            problems.append(f"waits: {too_many_waits(self.waits)}")
        if self.instruments and not self.ledger.enabled:
            problems.append(
                f"instruments: {', '.join(self.instruments)}: not valid with ledger: false, which "
                "they write to; remove one of the two"
            )
        problems += self._problems_of_step_at()
        if problems:
            raise ConfigError(problems)

    def _problems_of_capture_slow(self) -> list[str]:
        most = self.capture_slow
        if most < 0:
            return [f"capture_slow: {most} is not valid; expected a number of ranks, or 0 for none"]
        problems = []
        if most and not self.ledger.enabled:
            problems.append(
                f"capture_slow: {most}: not valid with ledger: false, which shows who is slow; "
                "remove one of the two"
            )
        if most and self.staging_dir is not None:
            problems.append(
                f"capture_slow: {most}: not valid with staging_dir: gpuprof looks for slow ranks "
                "in output_dir; remove one of the two"
            )
        return problems

    def _problems_of_step_at(self) -> list[str]:
        name = self.step_at
        if name is None:
            return []
        problems = []
        if not _STEP_AT.fullmatch(name):
            problems.append(
                f"step_at: {name!r} is not valid; expected MODULE:FUNCTION, MODULE:CLASS.METHOD, "
                "or CLASS.METHOD for a method of an actor"
            )
        elif ":" not in name and self.instruments is not None and "ray" not in self.instruments:
            problems.append(
                f"step_at: {name}: needs the instrument ray, which sees an actor's calls; add it "
                "to instruments"
            )
        if not self.ledger.enabled:
            problems.append(
                f"step_at: {name}: not valid with ledger: false, which keeps the steps; remove one "
                "of the two"
            )
        return problems

    def recording(self) -> Config:
        """The configuration for a job that marks nothing itself; all instruments by default."""
        if self.instruments is not None or not self.ledger.enabled:
            return self
        return attrs.evolve(self, instruments=Instruments(INSTRUMENTS))

    @property
    def sampling_rate(self) -> float:
        """Samples of stacks a second; 0 for none."""
        if self.sampling is None:
            return USUAL_SAMPLES if self.backend == "none" else 0.0
        return self.sampling

    @property
    def working_dir(self) -> str:
        """The directory where profilers write on each node, as an absolute path."""
        return os.path.abspath(self.staging_dir or self.output_dir)

    @property
    def staged(self) -> bool:
        """Whether files move from `staging_dir` to `output_dir`."""
        return self.staging_dir is not None and self.collect == "driver"

    @property
    def selects_nothing(self) -> bool:
        """Whether no worker of any group can be profiled."""
        return not self.enabled or not self.worker_groups

    @property
    def path(self) -> str:
        """The full path of the mapping that held the configuration."""
        return self.source.path

    def where(self, key: str) -> str:
        """The full path of a key, for messages."""
        return self.source.where(key)

    def where_of(self, key: str, group: str) -> str:
        """The full path of a selection key: in the last override for the group, or at the top."""
        patterns = [pattern for pattern, override in self._overrides(group) if key in override]
        return self.where(f"groups.{patterns[-1]}.{key}" if patterns else key)

    def recorded_as(self, group: str) -> str | None:
        """The group in which `gpuprof run` records a class's actors; ``None`` leaves them out."""
        recording = Recording()
        for pattern, override in self._overrides(group):
            values = {key: value for key, value in override.items() if key in RECORDING_KEYS}
            layer = structure_layer(values, Recording, join("groups", pattern), self.source)
            recording = attrs.evolve(recording, **{key: getattr(layer, key) for key in values})
        return (recording.name or group) if recording.record else None

    def selection(self, group: str) -> Selection:
        """The selection of one group: the top level, then matching groups in file order."""
        selection = self.defaults
        for pattern, override in self._overrides(group):
            values = {key: value for key, value in override.items() if key in SELECTION_KEYS}
            layer = structure_layer(values, Selection, join("groups", pattern), self.source)
            selection = attrs.evolve(selection, **{key: getattr(layer, key) for key in values})
        return selection

    def options(self, group: str, model: type[Any], plugin: str = "") -> Any:
        """The options of the backend, or of a plugin, for one group.

        The group's overrides win over the section. For the backend, the section wins over the keys
        at the level of `backend` (`FLAT_KEYS`).
        """
        names = [field.name for field in attrs.fields(model)]
        layers = [
            (path, _renamed(layer, model, self.where(path)))
            for path, layer in self._layers(group, plugin)
        ]
        # Keys that this backend lacks are meant for another backend: RLinf users switch backends by
        # changing only `backend`.
        layers[0] = ("", {key: value for key, value in layers[0][1].items() if key in names})
        values: dict[str, Any] = {}
        for _, layer in layers:
            values = merge(values, layer)
        try:
            return structure(values, model)
        except ConfigError as error:
            raise ConfigError(
                [self.where(join(_origin(problem, layers), problem)) for problem in error.problems]
            ) from None

    def deprecated(self, group: str, model: type[Any], plugin: str = "") -> list[str]:
        """A warning for each option that is set by a former name of its key."""
        return [
            f"{self.where(join(path, former))}: deprecated; rename it to {name}"
            for path, layer in self._layers(group, plugin)
            for former, name in _former_names(model).items()
            if former in layer
        ]

    def where_option(self, key: str, group: str) -> str:
        """The full path of a key of the backend's options for a group."""
        return self.where(join(_origin(key, self._layers(group)), key) if key else self.backend)

    def _layers(self, group: str, plugin: str = "") -> list[tuple[str, dict[str, Any]]]:
        """The mappings that set a group's options, weakest first, each with its path.

        Args:
            plugin: the plugin whose options are meant; empty for the backend.
        """
        name = plugin or self.backend
        return [
            ("", {} if plugin else self.flat),
            (name, self.sections.get(plugin) or {} if plugin else self.section),
            *(
                (f"groups.{pattern}.{name}", override.get(name) or {})
                for pattern, override in self._overrides(group)
            ),
        ]

    def _overrides(self, group: str) -> list[tuple[str, dict[str, Any]]]:
        overrides = list(self.groups.items())
        return [
            (overrides[position][0], overrides[position][1] or {})
            for position in self._patterns.matching(group)
        ]


SELECTION_KEYS = tuple(field.name for field in attrs.fields(Selection))
RECORDING_KEYS = tuple(field.name for field in attrs.fields(Recording))
OWN_KEYS = tuple(field.name for field in attrs.fields(Config) if "help" in field.metadata)
KEYS = (*OWN_KEYS, *SELECTION_KEYS)
FLAT_KEYS = ("options", "flags", "args", "env")
"""Keys of a backend's section that are also valid at the level of the key `backend`."""
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
    """Structure the values of one layer."""
    try:
        return structure(values, model)
    except ConfigError as error:
        problems = [source.where(join(path, problem)) for problem in error.problems]
        raise ConfigError(problems) from None


def _origin(problem: str, layers: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """The path of the last layer that sets the key at the start of a problem."""
    keys: list[str] = re.split(r"[.:\[]", problem, maxsplit=2)
    having = [(path, layer[keys[0]]) for path, layer in layers if keys[0] in layer]
    exact = [
        path
        for path, value in having
        if not isinstance(value, dict) or len(keys) < 2 or keys[1] in value
    ]
    origin: str = [layers[1][0], *(path for path, _ in having), *exact][-1]
    return origin


def _former_names(model: type[Any]) -> dict[str, str]:
    return {
        former: field.name
        for field in attrs.fields(model)
        for former in field.metadata.get("formerly", ())
    }


def _renamed(layer: dict[str, Any], model: type[Any], path: str) -> dict[str, Any]:
    """The layer with the former names of keys replaced by today's names."""
    names = _former_names(model)
    both = [former for former in names if former in layer and names[former] in layer]
    if both:
        raise ConfigError(
            [
                f"{join(path, key)}: deprecated, and {names[key]} is set, too; remove it"
                for key in both
            ]
        )
    return {names.get(key, key): value for key, value in layer.items()}


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge `above` over `below`, nested mappings included."""
    values = dict(below)
    for key, value in above.items():
        old = values.get(key)
        values[key] = (
            merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return values

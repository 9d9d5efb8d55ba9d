"""The plan of a whole job: a row for each worker, and warnings, before anything starts."""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from gpuprof._config.schema import DISABLED, Config
from gpuprof._config.secrets import is_secret
from gpuprof._config.selection import ALL_RANKS, matches
from gpuprof._plan.advice import advice
from gpuprof._plan.folding import DIRECTORY, fold
from gpuprof._plan.groups import Place
from gpuprof._plan.groups import parse as parse_workers
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.node import has_gpu, node_name
from gpuprof._shim.row import KEEP_EXIT_CODE
from gpuprof._tables import labelled
from gpuprof.errors import ConfigError, GpuprofError

Launcher = Literal["run", "ray"]
RUN = "{run}"
_SHOWN_RANKS = 64
_NO_CONFIGURATION = "no configuration, so nothing is profiled; give one or set GPUPROF_CONFIG"


@attrs.frozen
class Plan:
    """What will happen to each worker of a job.

    Args:
        rows: one row for each worker, in the given order.
        warnings: what the user should know before the start.
        backend: the profiler's name.
    """

    rows: tuple[PlannedWorker, ...]
    warnings: tuple[str, ...]
    backend: str

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The plan as text: equal rows are merged, and each note is printed once.

        Args:
            width: the screen's width in characters; ``None`` means the terminal's.
        """
        folds = fold(self.rows)
        lines = [workers.row.text(workers.name, width, short=True) for workers in folds]
        lines.append(labelled("", self._total, width))
        if any(DIRECTORY in line for line in lines):
            lines.append(labelled("", f"{DIRECTORY} is {self.rows[0].worker.directory}", width))
        notes: dict[str, list[str]] = {}
        folds_with_reports = [workers for workers in folds if workers.first.profiled]
        for workers in folds_with_reports:
            for note in workers.first.notes:
                notes.setdefault(note, []).append(workers.name)
        for note, names in notes.items():
            whose = f"{', '.join(names)}: " if len(names) < len(folds_with_reports) else ""
            lines.append(labelled("note: ", whose + note, width))
        return "\n".join([*lines, *self._warnings(width)])

    def every_worker(self, width: int | None = None) -> str:
        """The plan as text, with a full row for each worker."""
        rows = [row.text(row.worker.name, width) for row in self.rows]
        return "\n".join([*rows, labelled("", self._total, width), *self._warnings(width)])

    def _warnings(self, width: int | None) -> list[str]:
        return [labelled("warning: ", warning, width) for warning in self.warnings]

    @property
    def _total(self) -> str:
        """The line with the number of profiled workers and of expected reports."""
        count = sum(row.profiled for row in self.rows)
        files = sum(len(row.distinct_files) for row in self.rows)
        reports = f"{files} report{'' if files == 1 else 's'}"
        scopes = (
            ", plus one per captured scope"
            if any(row.profiled and row.worker.discrete for row in self.rows)
            else ""
        )
        return (
            f"{count} of {len(self.rows)} workers profiled with {self.backend}, {reports} "
            f"expected{scopes}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-compatible values. Secrets are masked."""
        return {
            "version": 1,
            "backend": self.backend,
            "workers": [row.to_dict() for row in self.rows],
            "warnings": list(self.warnings),
        }


def plan(
    config: Config,
    workers: str | os.PathLike[str] | Mapping[str, Any] | Sequence[Place] | None = None,
    launcher: Launcher | None = None,
) -> Plan:
    """Plan each worker of a job. Implements `gpuprof.plan`.

    Args:
        workers: the workers of the job; ``None`` means the groups that `config` names.
        launcher: what starts the workers; ``None`` assumes Ray.

    Raises:
        ConfigError: `workers` is not valid, or a key of `config` is not valid for a worker.
        PluginError: the backend cannot be loaded.
    """
    planner = Planner(config, RUN, config.working_dir)
    places = parse_workers(workers) if workers is not None else known(config)
    of_this_machine = has_gpu() if launcher == "run" else False
    rows = [_row(planner, place, of_this_machine) for place in places]
    warnings = advice(config, places, rows, workers is not None, launcher)
    if config is DISABLED:
        warnings.append(_NO_CONFIGURATION)
    return Plan(tuple(rows), tuple(warnings), config.backend)


def notes(config: Config) -> list[str]:
    """The plan's notes on the options, without repetition, for all workers that `config` names.

    Assumes a GPU for workers whose number of GPUs is unknown.
    """
    if config is DISABLED:
        return [_NO_CONFIGURATION]
    planner = Planner(config, RUN, config.working_dir)
    places = [] if config.selects_nothing else known(config, with_wildcards=True)
    rows = [
        planner.worker(place.group, place.rank, has_gpu=place.gpus is None or place.gpus > 0)
        for place in places
    ]
    return list(dict.fromkeys(note for row in rows for note in row.notes))


@attrs.frozen
class Asked:
    """The verdict of this machine's profiler on a configuration's options.

    Args:
        refusals: an error for each refused option, with the profiler's own words.
        note: why the profiler was not asked; empty if it was.
    """

    refusals: tuple[str, ...] = ()
    note: str = ""


def ask_tool(config: Config, places: Sequence[Place] | None = None) -> Asked:
    """Let this machine's profiler check the options of each kind of worker.

    Takes some tenths of a second for each kind. The profiler starts no program.
    """
    if config.selects_nothing:
        return Asked()
    planner = Planner(config, RUN, config.working_dir)
    hook = planner.manager("all").hook
    if not (hook.probe.get_hookimpls() and hook.diagnose.get_hookimpls()):
        return Asked()
    kinds = one_of_a_kind(config, places)
    if not any(planner.worker(place.group, place.rank).profiled for place in kinds):
        return Asked()
    tool = hook.probe()
    if tool is None:
        return Asked(
            note=f"{config.backend}: its program is not on this machine, so it was not asked about "
            "its options; gpuprof doctor asks it on a node"
        )
    refusals = []
    for place in kinds:
        has_gpu = place.gpus is None or place.gpus > 0
        try:
            plan = planner.worker(place.group, place.rank, has_gpu=has_gpu, tool=tool)
            if plan.profiled:
                planner.preflight(plan, tool, "plan")
        except GpuprofError as error:
            refusals.append(str(error))
    return Asked(tuple(dict.fromkeys(refusals)))


def one_of_a_kind(config: Config, places: Sequence[Place] | None = None) -> list[Place]:
    """One worker of each kind: of each group with overrides, of the others, with and without a GPU.

    Args:
        places: the workers; ``None`` means the workers that `config` names, including by wildcard.
    """
    kinds: dict[tuple[str, bool, bool], Place] = {}
    for place in known(config, with_wildcards=True) if places is None else places:
        own = matches(place.group, tuple(config.groups))
        is_selected = places is None or matches(place.group, config.worker_groups)
        kinds.setdefault((place.group if own else "", place.gpus != 0, is_selected), place)
    return list(kinds.values())


def known(config: Config, with_wildcards: bool = False) -> list[Place]:
    """The workers that a configuration names: its groups, with their selected ranks."""
    system_groups = config.source.workers
    groups: dict[str, float | None] = {
        name: group["gpus"] for name, group in system_groups.items() if not group.get("alias")
    }
    for name in [*(config.worker_groups or ()), *config.groups]:
        wildcard = name.lower() == "all" or any(letter in name for letter in "*?[")
        if wildcard and with_wildcards:
            groups[re.sub(r"[*?]|\[.*?\]", "", name) or "Worker"] = None
        elif not wildcard and name.lower() not in map(str.lower, [*groups, *system_groups]):
            groups[name] = None
    places = []
    for name, gpus in groups.items():
        ranks = config.selection(name).ranks
        few_ranks = [0] if not ranks or ranks == ALL_RANKS else ranks.up_to(_SHOWN_RANKS)
        places += [Place(name, rank, None, gpus) for rank in few_ranks or [0]]
    return places


def _row(planner: Planner, place: Place, of_this_machine: bool) -> PlannedWorker:
    gpu = of_this_machine if place.gpus is None else place.gpus > 0
    row = planner.worker(place.group, place.rank, has_gpu=gpu)
    if place.node is None:
        return row
    worker = attrs.evolve(row.worker, node=place.node)
    nodes = planner.config.selection(place.group).nodes
    if row.profiled and not matches(place.node, nodes):
        key = planner.config.source.key("nodes", place.group)
        return PlannedWorker(worker, False, f"{key} does not select {place.node}")
    return _filled(attrs.evolve(row, worker=worker), {"{node}": place.node})


def shell_line(config: Config, place: Place) -> str:
    """One worker's command line for a shell on this machine, to which the user adds the script."""
    run = f"plan-{os.getpid()}"
    planner = Planner(config, run, config.working_dir)
    python, has_gpu = (sys.executable,), bool(place.gpus)
    plan = functools.partial(
        planner.worker, place.group, place.rank, interpreter=python, has_gpu=has_gpu
    )
    row = plan()
    if not row.wrapped:
        raise ConfigError(f"{row.worker.name}: does not run under the profiler: {row.reason}")
    row = plan(tool=planner.check_tool())
    # The wrapper that records the exit code serves the shim, and the shell runs no shim.
    row = attrs.evolve(row, command=tuple(word for word in row.command if word != KEEP_EXIT_CODE))
    row = _filled(
        row, {"{node}": node_name(), "{incarnation}": "1", "{interpreter}": sys.executable}
    )
    words = ["env"]
    for name, value in row.environment.items():
        words += ["-u", name] if value is None else []
    words += [
        # A secret is not written out: the shell takes it from its own environment.
        f'{name}="${name}"'
        if is_secret(name) or name in row.secret
        else shlex.quote(f"{name}={value}")
        for name, value in row.environment.items()
        if value is not None
    ]
    directory = f"{planner.output_dir}/{run}/{node_name()}"
    return f"mkdir -p {shlex.quote(directory)} && {' '.join(words)} {shlex.join(row.command)}"


def _filled(row: PlannedWorker, late: Mapping[str, str]) -> PlannedWorker:
    def fill(word: str) -> str:
        for placeholder, value in late.items():
            word = word.replace(placeholder, value)
        return word

    return attrs.evolve(
        row,
        command=tuple(map(fill, row.command)),
        environment={
            name: fill(value) if value and name not in row.verbatim else value
            for name, value in row.environment.items()
        },
        files={number: fill(file) for number, file in row.files.items()},
        pattern=fill(row.pattern),
        log=fill(row.log),
    )

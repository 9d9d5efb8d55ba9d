"""Plan which workers are profiled, with which command and environment, into which files.

Pure: starts no process and creates no file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from gpuprof._config.schema import KEYS, Config, Selection
from gpuprof._config.secrets import secret_variables, without_secrets
from gpuprof._config.selection import Integers, matches, windows
from gpuprof._config.structure import join
from gpuprof._plan.groups import check_name
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.files import is_full
from gpuprof._shim.row import INTERPRETER, KEEP_EXIT_CODE, VERSION, LedgerLimits, Row, has_log
from gpuprof.backend import contract, loading
from gpuprof.backend.boundary import PLUGINS, Hooks
from gpuprof.backend.loading import make_hooks
from gpuprof.backend.types import Command, Purpose, Tool, Window, Worker
from gpuprof.errors import ConfigError, PluginError, ToolError

LATE_TOOL = Tool("{tool}")
_KEEP = (KEEP_EXIT_CODE,)


class Planner:
    """Makes the rows of one run's plan.

    Attributes:
        library_steps: whether instruments of libraries mark steps as long as the job marks none.
    """

    def __init__(self, config: Config, run: str, output_dir: str) -> None:
        self.library_steps = False
        self.config = config
        self.run = run
        self.output_dir = output_dir
        self._managers: dict[str, Hooks] = {}
        self._captured: dict[str, tuple[tuple[int, int], ...]] = {}
        if not config.selects_nothing:
            self.manager("all")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the backend: the process that unpickles this object loads it again."""
        return {
            "library_steps": self.library_steps,
            "config": self.config,
            "run": self.run,
            "output_dir": self.output_dir,
            "_managers": {},
            "_captured": {},
        }

    @functools.cached_property
    def _parts(self) -> tuple[Any, list[tuple[str, Any]]]:
        return _load_parts(self.config.backend or "none", self.config.plugins, self.config.path)

    @functools.cached_property
    def capability(self) -> contract.Capability | None:
        """How the backend records; ``None`` if it only keeps timing trees."""
        return contract.capability(self._parts[0])

    @property
    def starts_in_thread(self) -> bool:
        """Whether the backend records the thread that begins a step."""
        return contract.starts_in_thread(self._parts[0])

    def manager(self, group: str) -> Hooks:
        """The hooks as configured for `group`."""
        if group not in self._managers:
            backend, plugins = self._parts
            self._managers[group] = make_hooks(
                backend,
                self.config.options(group, backend.Options),
                plugins,
                self._plugin_options(group),
            )
        return self._managers[group]

    def _plugin_options(self, group: str) -> dict[str, Any]:
        """The options of each plugin that has options, by the plugin's name."""
        models = {name: loading.options_of(plugin) for name, plugin in self._parts[1]}
        return {
            name: self.config.options(group, model, name)
            for name, model in models.items()
            if model is not None
        }

    def check_tool(self) -> Tool | None:
        """Look for the profiler's program on this machine."""
        hook = self.manager("all").hook
        if not hook.probe.get_hookimpls():
            return None
        tool = hook.probe()
        if tool is None:
            missing = (
                hook.missing_tool() or f"the program of backend {self.config.backend!r} is missing"
            )
            key = self.config.where("backend")
            raise ToolError(
                f"{key}: {self.config.backend!r}: {missing}; or set {_without(key)} for timing "
                "trees only"
            )
        return tool  # type: ignore[no-any-return]

    def preflight(self, plan: PlannedWorker, tool: Tool, purpose: Purpose = "start") -> None:
        """Try the profiler on this machine with the options that a worker will have.

        Args:
            purpose: ``start``, or ``plan`` to have the profiler only read the options.

        Raises:
            ToolError: the profiler failed, and the message quotes its output; or the profiler
                cannot be tried because there is no temporary directory, as on a full disk.
        """
        group = plan.worker.group
        try:
            answers = self.manager(group).hook.diagnose(
                worker=plan.worker, tool=tool, purpose=purpose
            )
        except OSError as error:
            raise ToolError(f"{tool.path} cannot be tried on this machine: {error}") from None
        checks = (check for answer in answers for check in answer)
        refusal = next((check for check in checks if not check.ok), None)
        if refusal is not None:
            version = f" {tool.version}" if tool.version else ""
            key = self.config.where_option(refusal.key, group)
            raise ToolError(
                f"{key}: {tool.path}{version} says, for group {group}: {refusal.detail}"
            )

    def try_out(self, plan: PlannedWorker, tool: Tool) -> None:
        """Call `preflight` for a job that is about to start.

        Skips it if the temporary directory is full, unless `on_error` is ``raise``. The job still
        starts; its workers log that they run without the profiler.
        """
        if self.config.on_error == "raise" or not is_full(os.environ.get("TMPDIR") or "/tmp"):
            self.preflight(plan, tool)

    def worker(
        self,
        group: str,
        rank: int,
        *,
        interpreter: tuple[str, ...] = (INTERPRETER,),
        script: bool = True,
        python: bool = True,
        has_gpu: bool = False,
        tool: Tool | None = None,
    ) -> PlannedWorker:
        """Plan one worker.

        Raises:
            ConfigError: a key of the group or of the backend is not valid, or the backend does not
                support the key.
        """
        check_name(group, rank)
        config = self.config
        selection = config.selection(group)
        worker = Worker(
            run=self.run,
            group=group,
            rank=rank,
            node="{node}",
            incarnation="{incarnation}",
            directory=f"{self.output_dir}/{self.run}/{{node}}",
            windows=(),
            has_gpu=has_gpu,
        )
        key = functools.partial(config.source.key, group=group)
        if not config.enabled:
            return PlannedWorker(worker, False, config.source.off or f"{key('enabled')} is false")
        if config.worker_groups is None:
            return PlannedWorker(worker, False, f"{key('worker_groups')} is not set")
        if not config.worker_groups:
            return PlannedWorker(worker, False, f"{key('worker_groups')} is empty")
        if not matches(group, config.worker_groups):
            return PlannedWorker(worker, False, f"{key('worker_groups')} does not select {group}")
        if selection.ranks is None or rank not in selection.ranks:
            return PlannedWorker(worker, False, f"{key('ranks')} does not select {rank}")
        if selection.nodes is None:
            return PlannedWorker(worker, False, f"{key('nodes')} is null")
        if selection.armed and (selection.steps is None or selection.steps.ranges):
            raise ConfigError(
                f"{config.where('armed')}: true is not valid together with steps; expected "
                "steps: []"
            )
        if config.capture_slow and config.backend != "none" and not self.is_armed(group):
            raise ConfigError(
                f"{config.where('capture_slow')}: {config.capture_slow}: no worker is armed; set "
                "armed: true and steps: []"
            )
        if selection.steps is not None and not selection.steps.ranges and not selection.armed:
            return PlannedWorker(worker, False, f"{key('steps')} is empty")
        hooks = self.manager(group)
        hook = hooks.hook
        acting = [name for name in loading.ACTING if getattr(hook, name).get_hookimpls()]
        if not acting and config.backend == "none":
            return PlannedWorker(worker, False, "backend none records timing trees only")
        if not acting:
            backend = config.where("backend")
            raise PluginError(
                config.backend,
                f"{backend}: {config.backend!r} does nothing to a worker: it has none of the hooks "
                f"{', '.join(loading.ACTING)}; set {_without(backend)} for timing trees only",
            )
        worker = attrs.evolve(
            worker,
            windows=windows(selection.steps, selection.continuous),
            discrete=selection.discrete,
            file_name=selection.file_name,
        )
        tool = tool or LATE_TOOL
        try:
            bare_command = Command(interpreter, (), script, _KEEP if script else (), python)
            command = hook.render_command(worker=worker, command=bare_command, tool=tool)
            environment = self._variables(hooks, worker, tool)
        except ConfigError as error:
            # A backend does not know the full paths of gpuprof's keys in a larger configuration.
            raise ConfigError(
                [
                    config.where(problem) if problem.partition(":")[0] in KEYS else problem
                    for problem in error.problems
                ]
            ) from None
        if environment and not command:
            command = list(interpreter)
        own: object = None
        if any("{" in (value or "") for value in environment.values()):
            own = getattr(config.options(group, self._parts[0].Options), "env", None)
        notes = [note for notes in hook.plan_notes(worker=worker, tool=tool) for note in notes]
        if self.capability == "env_only":
            remark = "" if worker.lifetime else "; steps do not limit what it records"
            notes.append(
                f"{config.backend} only sets variables, which act for the worker's whole life"
                + remark
            )
        if self.starts_in_thread and not worker.lifetime:
            notes.append(
                f"{config.backend} records the thread in which a step begins, so steps must begin "
                "in the worker: those of its optimizer, or of gpuprof.step"
            )
        return PlannedWorker(
            worker=worker,
            profiled=True,
            reason="armed: captures the steps that gpuprof capture names"
            if selection.armed
            else f"selected by {_listed(key('worker_groups'), key('ranks'), key('steps'))}",
            command=tuple(command or ()),
            environment=environment,
            files={}
            if worker.discrete
            else hook.expected_files(worker=worker, windows=worker.windows) or {},
            notes=(*notes, *_selection_notes(config, group, selection)),
            verbatim=tuple(
                name
                for name, value in environment.items()
                if isinstance(own, dict) and own.get(name) == value
            ),
            secret=self._secret_variables(group),
            pattern=_pattern(hook, worker) if worker.discrete else "",
            log=worker.log_file if has_log(command or ()) else "",
        )

    def _secret_variables(self, group: str) -> frozenset[str]:
        backend = self.config.options(group, self._parts[0].Options)
        options = [backend, *self._plugin_options(group).values()]
        return frozenset().union(*map(secret_variables, options))

    def captured_steps(self, group: str) -> tuple[tuple[int, int], ...]:
        """The steps in which any worker of the run captures, as ascending ranges.

        Args:
            group: a group of the run, which the configuration need not name.
        """
        if group not in self._captured:
            pairs = [
                pair
                for selection in self._selections(group)
                if selection.steps is not None
                for pair in selection.steps.ranges
            ]
            self._captured[group] = Integers.merged(pairs).ranges
        return self._captured[group]

    def is_armed(self, group: str) -> bool:
        """Whether any worker of the run obeys ``gpuprof capture``."""
        return any(selection.armed for selection in self._selections(group))

    def _selections(self, group: str) -> list[Selection]:
        """The selections that capture: of `group` and of the groups in the configuration."""
        config = self.config
        if config.selects_nothing or not self._captures(group):
            return []
        names = dict.fromkeys([group, *(config.worker_groups or ()), *config.groups])
        selections = [
            config.selection(name) for name in names if matches(name, config.worker_groups)
        ]
        return [
            selection
            for selection in selections
            if selection.ranks is not None and selection.nodes is not None
        ]

    def _captures(self, group: str) -> bool:
        """Whether the backend or a plugin does more than keep timing trees."""
        hook = self.manager(group).hook
        return any(getattr(hook, name).get_hookimpls() for name in loading.ACTING)

    def _variables(self, hooks: Hooks, worker: Worker, tool: Tool) -> dict[str, str | None]:
        """The variables that the backend and the plugins set for a worker.

        Raises:
            PluginError: two of these set the same variable to different values.
        """
        variables: dict[str, str | None] = {}
        owners: dict[str, str] = {}
        for name, inject in hooks.each("inject_env", worker=worker, tool=tool):
            owner = self.config.backend if name == "backend" else name
            for variable, value in (item for values in inject() for item in values.items()):
                if variables.setdefault(variable, value) != value:
                    raise PluginError(
                        name,
                        f"{self.config.where('plugins')}: {owners[variable]!r} and {owner!r} set "
                        f"the variable {variable} to different values; use only one of them",
                    )
                owners.setdefault(variable, owner)
        return variables

    def row(self, plan: PlannedWorker, interpreter: list[str], tool: Tool | None) -> Row:
        """The row that the worker and its shim read from the variable `GPUPROF_WORKER`."""
        worker = plan.worker
        row: Row = {
            "version": VERSION,
            "run": worker.run,
            "group": worker.group,
            "rank": worker.rank,
            "output_dir": self.output_dir,
            "has_gpu": worker.has_gpu,
            "profiled": plan.profiled,
            "windows": [attrs.astuple(window) for window in worker.windows],
            "discrete": worker.discrete,
            "file_name": worker.file_name,
            "max_bytes": self.config.max_bytes,
            "run_directory": os.path.join(os.path.abspath(self.config.output_dir), worker.run),
        }
        if self.config.ledger.enabled:
            row["ledger"] = ledger_limits(self.config)
            if self.config.instruments:
                row["instruments"] = list(self.config.instruments)
            if self.library_steps and not plan.profiled:  # the driver's steps open windows
                row["library_steps"] = True
                if self.config.step_at is not None:
                    row["step_at"] = self.config.step_at
        if self.config.watchdog is not None:
            row["watchdog"] = self.config.watchdog
        steps = self.captured_steps(worker.group)
        own = [(window.start, window.stop) for window in worker.windows]
        # only if they add something: the row travels in a variable, whose length is limited
        if list(steps) != own:
            row["captured_steps"] = list(steps)
        selection = self.config.selection(worker.group)
        ranks = selection.finish_ranks
        if selection.finish_command is not None and (
            plan.profiled if ranks is None else worker.rank in ranks
        ):
            row["finish_command"] = selection.finish_command
        if plan.profiled:
            backend, _ = self._parts
            row["backend"] = self.config.backend
            options = attrs.asdict(self.config.options(worker.group, backend.Options))
            row["options"] = without_secrets(options, self.config.backend)
            row["plugins"] = list(self.config.plugins)
            plugin_options = self._plugin_options(worker.group)
            if plugin_options:
                row["plugin_options"] = {
                    name: without_secrets(attrs.asdict(options), name)
                    for name, options in plugin_options.items()
                }
            row["on_error"] = self.config.on_error
            row["discrete_labels"] = list(selection.discrete_labels)
            row["max_windows"] = selection.most_windows
            row["continuous"] = selection.continuous
            row["nodes"] = list(selection.nodes or ())
        if plan.wrapped:
            row["launch"] = {
                "command": list(plan.command),
                "environment": dict(plan.environment),
                "verbatim": list(plan.verbatim),
                "interpreter": interpreter,
                "tool": (tool or LATE_TOOL).path,
                "tool_version": (tool or LATE_TOOL).version,
                "shared_temporary": list((tool or LATE_TOOL).shared_temporary),
                "disposable_temporary": list((tool or LATE_TOOL).disposable_temporary),
            }
        return row


def _pattern(hook: Any, worker: Worker) -> str:
    """The path template of the files of discrete scopes; empty if the backend gives none."""
    sample = Window(1, None if worker.lifetime else 1, 2, "scope", 1)
    file = (hook.expected_files(worker=worker, windows=(sample,)) or {}).get(1)
    stem = worker.final_stem(sample)
    return worker.discrete_stem() + file.removeprefix(stem) if file else ""


def _selection_notes(config: Config, group: str, selection: Selection) -> Iterator[str]:
    """Notes on limits of the selection, and on keys without effect."""
    if selection.discrete:
        yield (
            f"discrete: captures at most {selection.most_windows} scopes on each worker; set "
            f"{config.source.key('max_windows', group)} to change the limit"
        )
        if selection.continuous:
            yield (
                f"{config.where_of('continuous', group)}: joins nothing with discrete: every scope "
                "stays a window of its own, and its file is named after all the joined steps"
            )
    default = Selection()
    for key, other_key in (
        ("discrete_labels", "discrete"),
        ("max_windows", "discrete"),
        ("finish_ranks", "finish_command"),
    ):
        if getattr(selection, key) != getattr(default, key) and not getattr(selection, other_key):
            yield f"{config.where_of(key, group)}: no effect without {other_key}"


def ledger_limits(config: Config) -> LedgerLimits:
    """The size limits of a ledger, and the rate of stack samples."""
    return {
        "bytes_per_step": config.ledger.bytes_per_step,
        "total": config.ledger.total,
        "sampling": config.sampling_rate,
    }


def common_tool(tools: Sequence[Tool]) -> Tool:
    """The tool to plan with as long as the worker's node is unknown.

    The tool's path is a placeholder. Its version and features are set only if they are equal for
    all `tools`. What any of them shares or can lose is in it.

    >>> common_tool([Tool("/a/nsys", "2023.4.4"), Tool("/b/nsys", "2023.4.4")]).version
    '2023.4.4'
    >>> common_tool([Tool("/a/nsys", "2023.4.4"), Tool("/b/nsys", "2022.4.2")]).version is None
    True
    """
    first = tools[0]
    alike = all((tool.version, tool.features) == (first.version, first.features) for tool in tools)
    return attrs.evolve(
        first if alike else LATE_TOOL,
        path=LATE_TOOL.path,
        shared_temporary=_united(tool.shared_temporary for tool in tools),
        disposable_temporary=_united(tool.disposable_temporary for tool in tools),
    )


def _united(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for group in groups for text in group))


def _without(key: str) -> str:
    """How to set no backend, given the full path of its key: another system's has no such value.

    >>> _without("profiling.backend"), _without("global_profiler.tool")
    ('profiling.backend: none', 'GPUPROF_BACKEND=none')
    """
    return f"{key}: none" if key.split(".")[-1] == "backend" else "GPUPROF_BACKEND=none"


def _load_parts(
    backend: str, plugins: tuple[str, ...], path: str
) -> tuple[Any, list[tuple[str, Any]]]:
    plugin_objects = [
        (name, loading.load(name, join(join(path, "plugins"), position), PLUGINS))
        for position, name in enumerate(plugins)
    ]
    return loading.load_backend(backend, join(path, "backend")), plugin_objects


def _listed(*keys: str) -> str:
    """Join keys into an English list without repetition."""
    *most, last = dict.fromkeys(keys)
    return f"{', '.join(most)} and {last}" if most else last

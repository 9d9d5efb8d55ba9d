"""Checks whether this machine can profile, by trying it. Each failure has a remedy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import attrs

from gpuprof._config.schema import DISABLED, Config
from gpuprof._config.selection import ALL_RANKS, Names
from gpuprof._doctor import installed, machine, start_up
from gpuprof._plan import job
from gpuprof._plan.groups import Place
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.node import has_gpu
from gpuprof.backend import contract, loading
from gpuprof.backend.boundary import reason
from gpuprof.backend.types import Check, Tool
from gpuprof.errors import GpuprofError, PluginError

_EVERYONE = Names(("all",))


Trying = Callable[[str], object]
"""A progress callback, which is called with the name of the next check."""


def examine(
    config: Config, limit: float | None = None, trying: Trying = lambda _: None
) -> list[Check]:
    """Check everything that a job with this configuration needs on this machine.

    Takes some seconds and leaves nothing behind.

    Args:
        config: the configuration. Its backend is checked with the options of each group. With
            `DISABLED`, when the user gives none, every installed backend is checked.
        limit: seconds that Ray gives a worker to start. ``None`` means this machine's setting, if
            Ray is installed.
        trying: called with the name of each check before it begins.
    """
    trying("directories and pip")
    checks = machine.checks(config.output_dir, config.staging_dir)
    limit = limit if limit is not None else start_up.registration_limit()
    if config.backend != "none":
        return [*checks, *_backend(config, limit, trying)]
    if config is not DISABLED:
        return [*checks, Check("none records", True, "timing trees and ledgers, by no profiler")]
    trying("installed backends")
    surveys = [
        plugin
        for plugin in installed.survey()
        if not plugin.is_plugin and (plugin.tool or plugin.missing or plugin.error)
    ]
    has_one = [
        plugin.name for plugin in surveys if plugin.tool and plugin.name in loading.own_backends()
    ]
    for plugin in surveys:
        if plugin.missing and has_one:
            # A machine has GPUs from only one vendor.
            checks.append(
                Check(
                    f"{plugin.name} tool",
                    True,
                    f"not found; not needed, as {has_one[0]} has its tool here",
                )
            )
        else:
            checks += _backend(attrs.evolve(config, backend=plugin.name), limit, trying)
    if not surveys:
        checks.append(
            Check(
                "backend",
                True,
                "none is installed; timing trees and ledgers need none (backend: none)",
                "to have a profiler's reports, install an extra of gpuprof, or another backend",
            )
        )
    if any(plugin.missing for plugin in surveys) and not has_one:
        checks.append(
            Check(
                "without a profiler",
                True,
                "timing trees and ledgers work: gpuprof doctor backend=none",
            )
        )
    return checks


def _backend(config: Config, limit: float | None, trying: Trying) -> list[Check]:
    name = config.backend
    checks: list[Check] = []
    try:
        checks.extend(_try_backend(config, limit, lambda what: trying(f"{name} {what}")))
    except Exception as error:  # a third party's check may raise anything
        is_theirs = name in {plugin.name for plugin in installed.survey()} and (
            isinstance(error, PluginError) or not isinstance(error, GpuprofError)
        )
        remedy = f"report it to the authors of {name}" if is_theirs else "fix the configuration"
        sentence = f"{type(error).__name__}: {reason(error)}" if is_theirs else str(error)
        checks.append(Check("backend", False, sentence, remedy))
    return [
        attrs.evolve(check, name=f"{name} {check.name}", detail=" ".join(check.detail.split()))
        for check in checks
    ]


def _try_backend(config: Config, limit: float | None, trying: Trying) -> Iterator[Check]:
    places = job.one_of_a_kind(config) or [Place("Worker", 0)]
    selection = attrs.evolve(config.defaults, ranks=ALL_RANKS, nodes=_EVERYONE)
    config = attrs.evolve(config, enabled=True, worker_groups=_EVERYONE, defaults=selection)
    with tempfile.TemporaryDirectory(prefix="gpuprof-doctor-") as directory:
        planner = Planner(config, "doctor", directory)
        hook = planner.manager("all").hook
        trying("tool")
        tool: Tool | None = hook.probe()
        if tool is None and hook.probe.get_hookimpls():
            yield Check(
                "tool", False, "not found on this machine", hook.missing_tool() or "install it"
            )
            return
        if tool is not None:
            yield Check("tool", True, f"{tool.path} {tool.version or '(unknown version)'}")
        if planner.capability is not None:
            yield _records(planner.capability, config)
        for place in places:
            if place.gpus and not has_gpu():
                yield Check(
                    "gpu",
                    True,
                    f"this node has no GPU; workers of group {place.group} need one",
                    "run gpuprof doctor on a node that has, or on all of them with --ray",
                )
            # Assume a GPU for workers with an unknown number of GPUs if this node has one.
            plan = planner.worker(
                place.group, place.rank, has_gpu=place.gpus != 0 and has_gpu(), tool=tool
            )
            if plan.profiled:
                yield from _worker(planner, plan, tool, limit, trying)


def _records(capability: contract.Capability, config: Config) -> Check:
    """A check that reports what a backend records, and warns if the backend ignores steps."""
    if capability == "env_only" and config.defaults.steps is not None:
        detail = "each worker's whole life, by variables; steps do not limit it"
        return Check("records", True, detail, "leave steps out: steps: null")
    details: dict[contract.Capability, str] = {
        "wraps": "the worker that its command runs",
        "in_process": "inside Python processes that use gpuprof",
        "env_only": "each worker's whole life, by variables",
    }
    return Check("records", True, details[capability])


def _worker(
    planner: Planner,
    plan: PlannedWorker,
    tool: Tool | None,
    limit: float | None,
    trying: Trying,
) -> Iterator[Check]:
    group = plan.worker.group
    if tool is not None:
        trying(f"options of group {group}")
        try:
            planner.preflight(plan, tool)
        except GpuprofError as error:
            yield Check("options", False, str(error), f"change the options of group {group}")
        else:
            yield Check("options", True, f"accepted for group {group}")
            if plan.wrapped:
                trying(f"start-up of group {group}")
                yield start_up.check(planner, plan, tool, limit)
    if tool is not None:
        trying(f"further checks of group {group}")
        answers = planner.manager(group).hook.diagnose(
            worker=plan.worker, tool=tool, purpose="doctor"
        )
        for checks in answers:
            yield from checks

"""Profile the right workers and steps of a distributed job, and always leave a timing tree."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuprof_timing import Timing, annotate

from gpuprof._session.public import (
    VARIABLE,
    sample,
    step,
    step_metrics,
    sync_mark,
    timer,
    timing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuprof._plan.groups import Place
    from gpuprof._plan.job import Plan

__all__ = [
    "Plan",
    "Timing",
    "annotate",
    "plan",
    "sample",
    "step",
    "step_metrics",
    "sync_mark",
    "timer",
    "timing",
]

if os.environ.get(VARIABLE):
    # All that a session needs is imported here. Two threads that imported parts of it at the same
    # moment, as an async actor's do, could each get an unfinished module.
    with suppress(Exception):  # the session's start says it
        importlib.import_module("gpuprof._session.session")


def plan(
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    workers: str | os.PathLike[str] | Mapping[str, Any] | Sequence[Place] | None = None,
    *,
    system: str | None = None,
    overrides: Sequence[str] = (),
) -> Plan:
    """Show who will be profiled, with which command line, windows and files. Starts nothing.

    Args:
        config: as `gpuprof.ray.Profiler` takes it.
        workers: ``{"ActorGroup": 8, "EnvGroup": {"count": 2, "gpus": 1, "nodes": ["a", "b"]}}``, a
            YAML file with such a mapping, or ``"ActorGroup=8:1,EnvGroup=2"`` (ranks, and after a
            colon GPUs per rank). ``None``: the groups that `config` names.
        system: the system whose settings `config` holds: ``rlinf``, ``verl``, ``nemo-rl``;
            ``None``: gpuprof.
        overrides: ``key.key=value``, as on Hydra's command line.

    Raises:
        ConfigError: `config` or `workers` is not valid, with every problem.
        PluginError: the backend, or the plugin for `system`, cannot be loaded.

    >>> made = plan({"backend": "none", "worker_groups": "actor*"}, {"ActorGroup": 1})
    >>> made.rows[0].reason
    'backend none records timing trees only'
    """
    from gpuprof._config.load import load
    from gpuprof._plan import job

    return job.plan(load(config, system=system, overrides=overrides), workers)


def __getattr__(name: str) -> Any:
    """Import on first use what only launchers need."""
    if name == "Plan":
        from gpuprof._plan.job import Plan

        return Plan
    if name == "__version__":
        from gpuprof._distribution import release

        return release()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

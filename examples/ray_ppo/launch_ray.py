"""Workers as Ray actors, in a local cluster that lives as long as the training."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import gpuprof.ray
import ray
from gpuprof.errors import PluginError, ToolError

log = logging.getLogger("ray_ppo")


class RayLaunch:
    """Starts actors, each behind the profiler if it was selected.

    Args:
        profiler: decides who is selected, and does the rest.
    """

    def __init__(self, profiler: gpuprof.ray.Profiler) -> None:
        self._profiler = profiler
        self.wait = wait

    def start(self, worker: type, group: str, rank: int, *arguments: Any) -> Any:
        """Start an actor. It claims no CPU, so that all fit on any machine."""
        actor: Any = ray.remote(worker)
        return self._profiler.start(
            lambda options: actor.options(**options).remote(*arguments),
            group=group,
            rank=rank,
            num_cpus=0,
        )

    def wait_until_started(self, handles: list[Any]) -> None:
        """Actors start side by side, and behind a profiler this takes some seconds."""
        ray.get([handle.__ray_ready__.remote() for handle in handles])

    def step(self, number: int, frames: int) -> AbstractContextManager[None]:
        """Profiles the step if the configuration says so, and counts its frames."""
        return self._profiler.step(number, frames=frames)


def wait(references: list[Any]) -> list[Any]:
    """The results of remote calls, once all have ended.

    If one fails, those that still run are cancelled.
    """
    try:
        return ray.get(references)
    except ray.exceptions.RayError:
        for reference in references:
            ray.cancel(reference)
        raise


@contextmanager
def launch(profiling: dict[str, Any], timing_only_without_tool: bool) -> Iterator[RayLaunch]:
    """For the time of the training.

    At the end the profiler logs timing trees and where the reports are.

    Args:
        profiling: the section `profiling` of the configuration.
        timing_only_without_tool: go on where the profiler is not installed.

    Raises:
        GpuprofError: the profiler cannot be used as the configuration asks.
    """
    with _cluster(), _make_profiler(profiling, timing_only_without_tool) as profiler:
        yield RayLaunch(profiler)


@contextmanager
def _cluster() -> Iterator[None]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Not where TMPDIR says: the path of a Unix socket below it may be no longer than about a
    # hundred characters.
    directory = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    # The actors import the modules of this folder, wherever the program was started.
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH")])
    )
    try:
        ray.init(
            "local",
            num_cpus=max(2, os.cpu_count() or 1),
            include_dashboard=False,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
            _node_ip_address="127.0.0.1",
            _temp_dir=directory,
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


def _make_profiler(
    profiling: dict[str, Any], timing_only_without_tool: bool
) -> gpuprof.ray.Profiler:
    try:
        return gpuprof.ray.Profiler(profiling, path="profiling")
    except (PluginError, ToolError) as error:
        if not timing_only_without_tool:
            raise
        print(f"timing trees only: {error}", file=sys.stderr)
        return gpuprof.ray.Profiler({**profiling, "backend": "none"}, path="profiling")

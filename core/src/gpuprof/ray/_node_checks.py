"""What runs on each node before the job starts: is the profiler there, and does it take the options?"""

from __future__ import annotations

from gpuprof import _shim
from gpuprof._config import Config
from gpuprof._plan import PlannedWorker, Planner
from gpuprof._types import Tool
from gpuprof.errors import GpuprofError


def try_node(config: Config, run: str, output_dir: str, planned: PlannedWorker) -> str | None:
    """Run on a node: what the profiler has against a worker's options."""
    try:
        planner = Planner(config, run, output_dir)
        tool = planner.check_tool()
        if tool is not None:
            planner.preflight(planned, tool)
    except GpuprofError as error:
        return f"{_shim.node_name()}: {error}"
    return None


def check_node(config: Config, run: str, output_dir: str) -> Tool | str | None:
    """Run on a node: the tool that is there, or what would keep it from running."""
    try:
        return Planner(config, run, output_dir).check_tool()
    except GpuprofError as error:
        return f"{_shim.node_name()}: {error}"

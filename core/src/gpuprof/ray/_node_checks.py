"""What runs on each node before the job starts: is the profiler there, and does it take the options?"""

from __future__ import annotations

from gpuprof._config import Config
from gpuprof._plan import PlannedWorker, Planner
from gpuprof._types import Tool


def check_node(config: Config, run: str, output_dir: str) -> Tool | None:
    """Run on a node: the tool that is there; ``None`` where the backend needs none.

    Raises:
        ToolError: it is not there.
    """
    return Planner(config, run, output_dir).check_tool()


def try_node(config: Config, run: str, output_dir: str, planned: PlannedWorker) -> Tool | None:
    """Run on a node: the tool, which has nothing against a worker's options.

    Raises:
        ToolError: it has, or is not there.
    """
    planner = Planner(config, run, output_dir)
    tool = planner.check_tool()
    if tool is not None:
        planner.preflight(planned, tool)
    return tool

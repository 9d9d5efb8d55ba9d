"""Checks on the nodes before a worker starts there, each done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray

from gpuprof._config.schema import Config
from gpuprof._config.selection import matches
from gpuprof._log import log
from gpuprof._plan.planner import Planner, common_tool
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.node import node_name
from gpuprof.backend.types import Tool
from gpuprof.errors import GpuprofError, ToolError
from gpuprof.ray._nodes import Nodes


class Preflight:
    """Checks, before any worker starts, that the profiler will work on the nodes.

    Before Ray starts it can check only this node. The first call after that checks the other nodes.

    Attributes:
        tool: the profiler's program: the one on this node, if this node may get a profiled worker.
            ``None`` if the backend needs no program.
        common_tool: the properties that the program has in common on all nodes.
    """

    def __init__(self, planner: Planner, nodes: Nodes) -> None:
        self._planner = planner
        self._nodes = nodes
        self._looked_under_ray: bool | None = None
        self._tried: set[tuple[str, bool, bool]] = set()
        self._said: set[str] = set()
        self._nowhere: ToolError | None = None
        self.tool: Tool | None = None
        self.common_tool: Tool | None = None

    def look_for_tool(self) -> None:
        """Find the profiler's program on the nodes.

        Raises:
            ToolError: a node that may get a profiled worker lacks the program. The message names
                the node.
        """
        if self._looked_under_ray is ray.is_initialized():
            return
        planner = self._planner
        answers = self._ask(
            check_node,
            planner.config,
            planner.run,
            planner.output_dir,
            nodes=_nodes_of_any_group(planner.config),
        )
        self._looked_under_ray = ray.is_initialized()
        self._nowhere = None
        # no selected node is known yet: assume that all have the same program as this node
        if not answers:
            try:
                answers = [planner.check_tool()]
            except ToolError as error:
                key, until = (
                    planner.config.where("nodes"),
                    "" if ray.is_initialized() else " before Ray is started",
                )
                self._nowhere = ToolError(
                    f"{node_name()}: {error}; and {key} selects no node that can be checked{until}"
                )
        tools = [tool for tool in answers if tool is not None]
        self.tool = tools[0] if tools else None
        self.common_tool = common_tool(tools) if tools else None

    def try_out(self, worker_plan: PlannedWorker) -> None:
        """Try the profiler with a group's options on every node that may get the group's workers.

        Raises:
            ToolError: the profiler refuses the options, and the message names the node; or no known
                node has the profiler.
        """
        if not worker_plan.wrapped:
            return
        if self._nowhere is not None:
            raise self._nowhere
        group, gpu = worker_plan.worker.group, worker_plan.worker.has_gpu
        key = (group, gpu, ray.is_initialized())
        if self.tool is None or key in self._tried:
            return
        planner = self._planner
        nodes = tuple(planner.config.selection(group).nodes or ())
        self._ask(
            try_node,
            planner.config,
            planner.run,
            planner.output_dir,
            worker_plan,
            nodes=nodes,
            gpu=gpu,
        )
        self._tried.add(key)

    def announce(self, worker_plan: PlannedWorker) -> None:
        """Log once which groups are profiled, and the plan's notes."""
        if not worker_plan.profiled:
            return
        config, group = self._planner.config, worker_plan.worker.group
        pattern = next(
            pattern for pattern in config.worker_groups or () if matches(group, (pattern,))
        )
        headline = (
            f"{config.backend.capitalize()} profiling enabled for worker '{group}' (matched "
            f"pattern '{pattern}')"
        )
        for key, sentence in [
            (headline, headline),
            *((note, f"{group}: {note}") for note in worker_plan.notes),
        ]:
            if key not in self._said:
                self._said.add(key)
                log().info("%s", sentence)

    def _ask(
        self, check: Callable[..., Tool | None], *arguments: Any, **options: Any
    ) -> list[Tool | None]:
        """Run `check` on the nodes, and return the results of the nodes that can be reached.

        Raises:
            ToolError: the check failed on some nodes. The message names them all.
        """
        results, problems = [], []
        for answer in self._nodes.ask(check, *arguments, **options):
            if answer.error is None:
                results.append(answer.result)
            elif isinstance(answer.error, GpuprofError):
                problems.append(f"{answer.node}: {answer.error}")
            # the node may be gone, which is no reason not to start
            elif isinstance(answer.error, (TimeoutError, ray.exceptions.RayError)):
                log().warning(
                    "could not check node %s for the profiler: %s",
                    answer.node,
                    str(answer.error).partition("\n")[0],
                )
            else:  # gpuprof is not installed there, or is another version
                problems.append(f"{answer.node}: {type(answer.error).__name__}: {answer.error}")
        if problems:
            raise ToolError("\n".join(problems))
        return results


def _nodes_of_any_group(config: Config) -> tuple[str, ...]:
    selections = [config.defaults, *(config.selection(pattern) for pattern in config.groups)]
    return tuple({name for selection in selections for name in selection.nodes or ()})


def check_node(config: Config, run: str, output_dir: str) -> Tool | None:
    """The node's tool; ``None`` if the backend needs none. Runs on the node."""
    return Planner(config, run, output_dir).check_tool()


def try_node(config: Config, run: str, output_dir: str, worker_plan: PlannedWorker) -> Tool | None:
    """Try a worker's options with the node's tool, and return it. Runs on the node."""
    planner = Planner(config, run, output_dir)
    tool = planner.check_tool()
    if tool is not None:
        planner.try_out(worker_plan, tool)
    return tool

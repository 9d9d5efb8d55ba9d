"""What is looked at and tried on the nodes before a worker starts there, each once."""

from __future__ import annotations

import ray

from gpuprof import _plan
from gpuprof._log import log
from gpuprof._plan import PlannedWorker, Planner
from gpuprof._selection import matches
from gpuprof._types import Tool
from gpuprof.errors import ToolError
from gpuprof.ray._node_checks import check_node, try_node
from gpuprof.ray._nodes import Nodes


class Preflight:
    """Refuses, before anything starts, what would fail on a node.

    Attributes:
        tool: the profiler's program on this node; ``None`` where the backend needs none.
        common_tool: what can be said of it on all nodes.
    """

    def __init__(self, planner: Planner, nodes: Nodes) -> None:
        self._planner = planner
        self._nodes = nodes
        self._tried: set[tuple[str, bool]] = set()
        self._said: set[str] = set()
        self.tool: Tool | None = None
        self.common_tool: Tool | None = None

    def look_for_tool(self) -> None:
        """Learn which tool the nodes have.

        Raises:
            ToolError: a node that may get a profiled worker lacks it, or cannot write there.
        """
        planner = self._planner
        self.tool = planner.check_tool()
        nodes = tuple(planner.config.defaults.nodes or ())
        found = (
            self._nodes.on_each(check_node, planner.config, planner.run, planner.output_dir, nodes=nodes)
            if ray.is_initialized()
            else []
        )
        _refuse([problem for problem in found if isinstance(problem, str)])
        if self.tool is not None:
            self.common_tool = _plan.common_tool([self.tool, *(tool for tool in found if isinstance(tool, Tool))])

    def try_out(self, planned: PlannedWorker) -> None:
        """Try the profiler with a group's options on every node that may get it.

        Raises:
            ToolError: it refuses them.
        """
        key = (planned.worker.group, planned.worker.has_gpu)
        if self.tool is None or not planned.wrapped or key in self._tried:
            return
        self._tried.add(key)
        planner = self._planner
        nodes = tuple(planner.config.selection(planned.worker.group).nodes or ())
        arguments = (planner.config, planner.run, planner.output_dir, planned)
        _refuse([said for said in self._nodes.on_each(try_node, *arguments, nodes=nodes, gpu=planned.worker.has_gpu) if said])

    def announce(self, planned: PlannedWorker) -> None:
        """Say which groups are profiled and what the user should know."""
        if not planned.profiled:
            return
        config, group = self._planner.config, planned.worker.group
        pattern = next(pattern for pattern in config.worker_groups or () if matches(group, (pattern,)))
        enabled = f"{config.backend.capitalize()} profiling enabled for worker '{group}' (matched pattern '{pattern}')"
        for said, sentence in [(enabled, enabled), *((note, f"{group}: {note}") for note in planned.notes)]:
            if said not in self._said:
                self._said.add(said)
                log().info("%s", sentence)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ToolError("\n".join(problems))

"""Plans a worker and its runtime environment, in the driver and in workers that make others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import ray

from gpuprof._config.secrets import is_secret
from gpuprof._plan.planner import Planner
from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.row import LEFT_OUT, VARIABLE, Row, encode
from gpuprof.backend.types import Tool
from gpuprof.ray import _runtime_env


@attrs.frozen
class Planning:
    """Plans the workers of a run.

    Args:
        tool: the profiler's program, as found by the driver; ``None`` if there is none.
        common_tool: the properties that the program has in common on all nodes.
        node_ids: whether several nodes share a host name.
        drives: whether a worker that this process starts makes the other workers and counts the
            steps.
        tasks: the group of processes that run tasks; ``None`` if they are not recorded.
    """

    planner: Planner
    tool: Tool | None
    common_tool: Tool | None
    node_ids: bool
    drives: bool = False
    tasks: str | None = None

    def worker(self, group: str, rank: int, options: Mapping[str, Any]) -> PlannedWorker:
        """Plan an actor or a task with the given Ray options."""
        has_gpu = bool(options.get("num_gpus"))
        return self.planner.worker(group, rank, has_gpu=has_gpu, tool=self.common_tool)

    def start(
        self, worker_plan: PlannedWorker, runtime_env: Mapping[str, Any]
    ) -> tuple[PlannedWorker, dict[str, Any]]:
        """Make the runtime environment with which a worker starts.

        Returns:
            The plan without the variables that the job sets itself, and `runtime_env` extended by
            the plan's settings.
        """
        job_env = _job_env()
        # The user's own values win, wherever they were given.
        own = {**(job_env.get("env_vars") or {}), **(runtime_env.get("env_vars") or {})}
        worker_plan = attrs.evolve(
            worker_plan,
            environment={k: v for k, v in worker_plan.environment.items() if k not in own},
        )
        # Secrets are separate variables, because Ray shows the row and children inherit it.
        secrets_apart = {
            k: v
            for k, v in worker_plan.environment.items()
            if v and (is_secret(k) or k in worker_plan.secret) and "$" not in v
        }
        row = self._row(worker_plan, runtime_env, job_env)
        if self.drives:
            row["drives"] = True
        if worker_plan.wrapped:
            row["launch"]["environment"] = {
                k: v for k, v in worker_plan.environment.items() if k not in secrets_apart
            }
        variables = {VARIABLE: encode(row), **secrets_apart}
        return worker_plan, _runtime_env.merge(
            runtime_env, job_env, variables, worker_plan.wrapped, "runtime_env"
        )

    def leave_out(self, runtime_env: Mapping[str, Any]) -> dict[str, Any]:
        """The runtime environment of a process that is not recorded; actors that it makes are."""
        job_env = _job_env()
        row = self._row(self._unprofiled(LEFT_OUT), runtime_env, job_env)
        row["role"] = LEFT_OUT
        return _runtime_env.merge(
            runtime_env, job_env, {VARIABLE: encode(row)}, False, "runtime_env"
        )

    def job(self, runtime_env: Mapping[str, Any], group: str) -> dict[str, Any]:
        """The runtime environment for the job's processes that are not planned workers."""
        row = self._row(self._unprofiled(group), {}, {})
        row["role"] = "child"
        return _runtime_env.merge(runtime_env, {}, {VARIABLE: encode(row)}, False, "runtime_env")

    def _unprofiled(self, group: str) -> PlannedWorker:
        return attrs.evolve(self.planner.worker(group, 0), profiled=False, command=())

    def _row(
        self, worker_plan: PlannedWorker, runtime_env: Mapping[str, Any], job_env: Mapping[str, Any]
    ) -> Row:
        interpreter = _runtime_env.interpreter(runtime_env, job_env)
        row = self.planner.row(worker_plan, interpreter, self.tool)
        row["node_ids"] = self.node_ids
        if self.tasks is not None:
            row["tasks"] = self.tasks
        if interpreter and not worker_plan.wrapped:
            row["interpreter"] = interpreter
        return row


def _job_env() -> Mapping[str, Any]:
    """The runtime environment that actors and tasks inherit from this process."""
    return ray.get_runtime_context().runtime_env if ray.is_initialized() else {}

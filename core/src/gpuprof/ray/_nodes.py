"""Running a function on every node of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ray

from gpuprof._selection import matches

Result = TypeVar("Result")


def on_each_node(
    function: Callable[..., Result],
    *arguments: Any,
    nodes: tuple[str, ...] = ("all",),
    gpu: bool = False,
    timeout: float = 60.0,
) -> list[Result]:
    """Call `function` here, and by a task on every other node that is alive and matches `nodes`.

    A node that does not answer within `timeout` seconds is left out.

    Args:
        gpu: only on nodes that have a GPU for Ray.
    """
    results = [] if gpu and not _has_gpu() else [function(*arguments)]
    if not ray.is_initialized():
        return results
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    task = ray.remote(function)
    pending = [
        task.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(*arguments)
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] != here and matches(node["NodeManagerHostname"], nodes)
        if not gpu or node["Resources"].get("GPU")
    ]
    if pending:
        ready, late = ray.wait(pending, num_returns=len(pending), timeout=timeout)
        results += ray.get(ready)
        for reference in late:
            ray.cancel(reference, force=True)
    return results


def _has_gpu() -> bool:
    """Whether this node has one for Ray; yes while there is no cluster that could say."""
    if not ray.is_initialized():
        return True
    here = ray.get_runtime_context().get_node_id()
    return any(node["NodeID"] == here and node["Resources"].get("GPU") for node in ray.nodes())

"""Running a function on every node of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs
import ray

from gpuprof import _shim
from gpuprof._selection import matches

Result = TypeVar("Result")


@attrs.frozen
class Answer(Generic[Result]):
    """What one node has said.

    Args:
        node: its name, as in paths.
        result: of the function.
        error: why there is none.
    """

    node: str
    result: Result | None
    error: Exception | None = None


def ask_each_node(
    function: Callable[..., Result],
    *arguments: Any,
    nodes: tuple[str, ...] = ("all",),
    gpu: bool = False,
    timeout: float = 60.0,
) -> list[Answer[Result]]:
    """Call `function` here, and by a task on every other node that is alive and matches `nodes`. Every one of them is answered for.

    Args:
        gpu: only on nodes that have a GPU for Ray.
        timeout: seconds, after which the error of a node is `TimeoutError`.
    """
    answers: list[Answer[Result]] = []
    if not gpu or _has_gpu():
        try:
            answers.append(Answer(_shim.node_name(), function(*arguments)))
        except Exception as error:
            answers.append(Answer(_shim.node_name(), None, error))
    if not ray.is_initialized():
        return answers
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    task = ray.remote(function)
    asked = {
        task.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(*arguments): node["NodeManagerHostname"]
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] != here and matches(node["NodeManagerHostname"], nodes)
        if not gpu or node["Resources"].get("GPU")
    }
    ready = ray.wait(list(asked), num_returns=len(asked), timeout=timeout)[0] if asked else []
    for reference, node in asked.items():
        if reference not in ready:
            ray.cancel(reference, force=True)
            answers.append(Answer(node, None, TimeoutError(f"it has not answered within {timeout:.0f} s")))
            continue
        try:
            answers.append(Answer(node, ray.get(reference)))
        except ray.exceptions.RayTaskError as error:
            answers.append(Answer(node, None, error.cause))
        except Exception as error:
            answers.append(Answer(node, None, error))
    return answers


def on_each_node(function: Callable[..., Result], *arguments: Any, **options: Any) -> list[Result]:
    """What `ask_each_node` brings. A node that does not answer, or dies, is left out.

    Raises:
        Exception: what `function` has raised, on whichever node.
    """
    results = []
    for answer in ask_each_node(function, *arguments, **options):
        if answer.error is None:
            results.append(answer.result)
        elif not isinstance(answer.error, (TimeoutError, ray.exceptions.RayError)):
            raise answer.error
    return results  # type: ignore[return-value]


def _has_gpu() -> bool:
    """Whether this node has one for Ray; yes while there is no cluster that could say."""
    if not ray.is_initialized():
        return True
    here = ray.get_runtime_context().get_node_id()
    return any(node["NodeID"] == here and node["Resources"].get("GPU") for node in ray.nodes())

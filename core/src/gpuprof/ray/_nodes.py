"""Runs functions on the nodes of the cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import attrs
import ray

from gpuprof._config.selection import matches
from gpuprof._shim.node import name_node, node_name, unique_name
from gpuprof.errors import GpuprofError, OutputError

Result = TypeVar("Result")
IN_FLIGHT = 3
"""The most calls of a stream that are in flight at once.

With chunks of 16 MiB the driver holds three in Ray's object store and one in memory, 64 MiB
together; the node holds the same.
"""


@attrs.frozen
class Answer(Generic[Result]):
    """One node's answer.

    Args:
        error: why there is no result; ``None`` if there is one.
    """

    node: str
    result: Result | None
    error: Exception | None = None


class Nodes:
    """The nodes of the cluster, under unique names.

    Names are part of paths, so their form is decided only once, when a cluster is connected; see
    `share_names`.
    """

    def __init__(self) -> None:
        self._share_names: bool | None = None
        self._seen: dict[str, str] = {}
        name_node(None)  # forget the name from an earlier cluster
        _ = self.share_names

    @property
    def share_names(self) -> bool:
        """Whether nodes share a host name, so that names include Ray's node ids."""
        if self._share_names is None and ray.is_initialized():
            hosts = [node["NodeManagerHostname"] for node in _alive()]
            self._share_names = len(set(hosts)) < len(hosts)
            self._seen = {node["NodeID"]: self.name(node) for node in _alive()}
            if self._share_names:
                name_node(self._seen[ray.get_runtime_context().get_node_id()])
        return bool(self._share_names)

    def name(self, node: Mapping[str, Any]) -> str:
        """A node's name in paths. The workers on the node construct the same name."""
        host: str = node["NodeManagerHostname"]
        return unique_name(host, node["NodeID"]) if self.share_names else host

    def named(self, name: str) -> dict[str, Any]:
        """The node with the given name."""
        match = next((node for node in _alive() if self.name(node) == name), None)
        if match is None:
            raise OutputError(f"node {name} has died")
        return match

    def lost(self) -> list[str]:
        """The names of nodes that have died since they were first seen."""
        if not ray.is_initialized():
            return []
        alive = {node["NodeID"]: self.name(node) for node in _alive()}
        self._seen |= alive
        return sorted(
            {name for node, name in self._seen.items() if node not in alive} - set(alive.values())
        )

    def seen(self, node_id: str) -> str | None:
        """The name of the node with Ray's hexadecimal id, even if the node has died."""
        return self._seen.get(node_id)

    def of_actor(self, handle: Any) -> str | None:
        """The name of the node that an actor is on, or was when it died."""
        # the public ray.util.state needs the dashboard, which few clusters run
        from ray._private import state

        if not ray.is_initialized():
            return None
        self.lost()
        return self.seen(state.actors(handle._actor_id.hex()).get("Address", {}).get("NodeID"))

    def ask(
        self,
        function: Callable[..., Result],
        *arguments: Any,
        nodes: tuple[str, ...] = ("all",),
        gpu: bool = False,
        timeout: float = 60.0,
    ) -> list[Answer[Result]]:
        """Call `function` here, and in a task on every other living node that matches `nodes`.

        Args:
            gpu: whether to call only on nodes that have a GPU in Ray's resources.
            timeout: the most seconds to wait. A node that has not answered by then gets a
                `TimeoutError`.
        """
        answers: list[Answer[Result]] = []
        if matches(os.uname().nodename, nodes) and (not gpu or _has_gpu()):
            try:
                answers.append(Answer(node_name(), function(*arguments)))
            except Exception as error:
                answers.append(Answer(node_name(), None, error))
        if not ray.is_initialized():
            return answers
        this_node = ray.get_runtime_context().get_node_id()
        calls = {
            self.call(node, function, *arguments): self.name(node)
            for node in _alive()
            if node["NodeID"] != this_node and matches(node["NodeManagerHostname"], nodes)
            if not gpu or node["Resources"].get("GPU")
        }
        ready = ray.wait(list(calls), num_returns=len(calls), timeout=timeout)[0] if calls else []
        for reference, name in calls.items():
            if reference not in ready:
                ray.cancel(reference, force=True)
                answers.append(
                    Answer(name, None, TimeoutError(f"no answer within {timeout:.0f} s"))
                )
                continue
            try:
                answers.append(Answer(name, ray.get(reference)))
            except ray.exceptions.RayTaskError as error:
                answers.append(Answer(name, None, error.cause))
            except Exception as error:
                answers.append(Answer(name, None, error))
        return answers

    def on_each(
        self,
        function: Callable[..., Result],
        *arguments: Any,
        timeout: float = 60.0,
        **options: Any,
    ) -> list[Result]:
        """The results of `ask`, without those of nodes that do not answer or that die.

        Raises:
            Exception: the exception that `function` raised on some node.
        """
        results = []
        for answer in self.ask(function, *arguments, timeout=timeout, **options):
            if answer.error is None:
                results.append(answer.result)
            elif not isinstance(answer.error, (TimeoutError, ray.exceptions.RayError)):
                raise answer.error
        return results  # type: ignore[return-value]

    def on(self, node: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call `function` on the node with the given name."""
        if node == node_name():
            return function(*arguments)
        result: Result = _result(self.call(self.named(node), function, *arguments))
        return result

    def stream(
        self, node: str, function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]]
    ) -> Iterator[Result]:
        """The results of `function` on one node, in order; at most `IN_FLIGHT` calls at once."""
        if node == node_name():
            yield from (function(*args) for args in arguments)
            return
        waiting: deque[Any] = deque()
        for args in arguments:
            if len(waiting) == IN_FLIGHT:
                yield _result(waiting.popleft())
            waiting.append(self.call(self.named(node), function, *args))
        while waiting:
            yield _result(waiting.popleft())

    def call(self, node: Mapping[str, Any], function: Callable[..., Any], *arguments: Any) -> Any:
        """Start `function` in a task pinned to a node, and return the reference of its result."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        # no retries: a task that is pinned to a node dies with it
        task = ray.remote(_named).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
        return task.remote(self.name(node), function, arguments)


def _result(reference: Any) -> Any:
    """Return a task's result, or raise the task's own error without Ray's wrapping."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def connected_nodes(address: str) -> Nodes:
    """Connect this process to the cluster at an address, and return its nodes.

    Raises:
        GpuprofError: no cluster answers.
    """
    connect(address, f"--address: {address!r}")
    return Nodes()


def connect(address: str, asked_by: str) -> None:
    """Connect this process to the cluster at an address, unless it is already connected to one.

    Args:
        asked_by: the option that has the address, with its value, for the message.
    """
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level="WARNING")
        except Exception as error:
            raise GpuprofError(f"{asked_by}: cannot connect to a Ray cluster: {error}") from None


def _named(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    name_node(name)
    return function(*arguments)


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]] if ray.is_initialized() else []


def _has_gpu() -> bool:
    """Whether this node has a GPU in Ray's resources; ``True`` while there is no cluster."""
    if not ray.is_initialized():
        return True
    this_node = ray.get_runtime_context().get_node_id()
    return any(node["NodeID"] == this_node and node["Resources"].get("GPU") for node in ray.nodes())


def is_starting(handle: Any) -> bool:
    """Whether Ray is still creating an actor, or is restarting it."""
    # the public ray.util.state needs the dashboard, which few clusters run
    from ray._private import state

    return state.actors(handle._actor_id.hex()).get("State") in (
        "DEPENDENCIES_UNREADY",
        "PENDING_CREATION",
        "RESTARTING",
    )

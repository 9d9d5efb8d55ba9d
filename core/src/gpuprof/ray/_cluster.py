"""A running cluster: its workers, and the doctor's checks on its nodes."""

from __future__ import annotations

import re
from collections import Counter

import ray

from gpuprof._config.schema import Config
from gpuprof._doctor.examine import examine
from gpuprof._plan.groups import Place
from gpuprof.backend.types import Check
from gpuprof.ray._nodes import connect, connected_nodes


def running_workers(address: str = "auto") -> list[Place]:
    """The actors that are alive, as workers of a plan.

    The group and the rank are those of an actor's name, as in ``ActorGroup-0`` or ``ActorGroup:0``.
    Without such a name the group is the actor's class, and the ranks are in the order of starting.

    Args:
        address: of the cluster, if this process is not connected to one.

    Raises:
        GpuprofError: none answers.
    """
    connect(address, "--workers: 'ray'")
    # the public ray.util.state needs the dashboard, which few clusters run
    from ray._private import state

    hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
    actors = [actor for actor in state.actors().values() if actor["State"] == "ALIVE"]
    next_ranks: Counter[str] = Counter()
    places = []
    for actor in sorted(actors, key=lambda actor: actor["StartTime"]):
        name_match = re.fullmatch(r"(.+?)[-:_](\d+)", actor["Name"])
        group = name_match[1] if name_match else actor["ActorClassName"]
        rank = int(name_match[2]) if name_match else next_ranks[group]
        next_ranks[group] += not name_match
        places.append(Place(group, rank, hosts.get(actor["Address"]["NodeID"])))
    return places


_DEADLINE = 600.0


def examine_nodes(config: Config, address: str = "auto") -> list[tuple[str, list[Check]]]:
    """Run the checks of ``gpuprof doctor`` on each live node, in a task pinned to it.

    Args:
        address: of the cluster, if this process is not connected to one.

    Returns:
        The checks, with the name of their node.

    Raises:
        GpuprofError: no cluster answers.
    """
    nodes = connected_nodes(address)
    # the cluster's own limit: it is set when a node is started, and is the same on all nodes
    limit = float(ray._raylet.Config.worker_register_timeout_seconds())
    results = []
    for answer in nodes.ask(examine, config, limit, timeout=_DEADLINE):
        if answer.result is not None:
            checks = answer.result
        else:
            words = f"{type(answer.error).__name__}: {answer.error}".splitlines()[0]
            checks = [
                Check(
                    "answers",
                    False,
                    words,
                    "install gpuprof for the Python that Ray runs there, or mend the node",
                )
            ]
        results.append((answer.node, checks))
    return results

"""The workers of a cluster that runs already."""

from __future__ import annotations

import re
from collections import Counter

import ray

from gpuprof._workers import Place
from gpuprof.ray._nodes import connect


def running_workers(address: str = "auto") -> list[Place]:
    """The actors that are alive, as workers of a plan.

    The group and the rank are those of an actor's name, as in ``ActorGroup-0`` or ``ActorGroup:0``. Without such a name the group
    is the actor's class, and the ranks are in the order of starting.

    Args:
        address: of the cluster, if this process is not connected to one.

    Raises:
        GpuprofError: none answers.
    """
    connect(address, "--workers: 'ray'")
    from ray._private import state  # the public ray.util.state needs the dashboard, which few clusters run

    hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
    actors = [actor for actor in state.actors().values() if actor["State"] == "ALIVE"]
    unnamed: Counter[str] = Counter()
    places = []
    for actor in sorted(actors, key=lambda actor: actor["StartTime"]):
        named = re.fullmatch(r"(.+?)[-:_](\d+)", actor["Name"])
        group = named[1] if named else actor["ActorClassName"]
        rank = int(named[2]) if named else unnamed[group]
        unnamed[group] += not named
        places.append(Place(group, rank, hosts.get(actor["Address"]["NodeID"])))
    return places

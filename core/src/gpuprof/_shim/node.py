"""What this node is called, whether it is selected, and whether it has a GPU."""

from __future__ import annotations

import os
from contextlib import suppress

from .row import Row

_given_name: str | None = None


def name_node(name: str | None) -> None:
    """Give this node a name, in this process: one that its row does not tell, as on the driver."""
    global _given_name
    _given_name = name


def node_name(row: Row | None = None) -> str:
    """This node's name in paths: its host name; where several nodes share that, with the beginning
    of Ray's id of the node.

    Args:
        row: of the worker that this process is. It says whether nodes share a name.
    """
    host = os.uname().nodename
    node = _ray_node() if row is not None and row.get("node_ids") else ""
    return unique_name(host, node) if node else _given_name or host


def unique_name(host: str, node: str) -> str:
    """A node's name where its host name is not enough."""
    return f"{host}-{node[:8]}"


def _ray_node() -> str:
    """Ray's id of this node, which a worker's environment does not have, but the command of the
    raylet that has started it.
    """
    with suppress(OSError, KeyError), open(f"/proc/{os.environ['RAY_RAYLET_PID']}/cmdline") as file:
        for word in file.read().split("\0"):
            if word.startswith("--node_id="):
                return word.partition("=")[2]
    return ""


def selected(nodes: list[str]) -> bool:
    """Whether host names or wildcards select this node."""
    if [node.lower() for node in nodes] == ["all"]:
        return True
    from fnmatch import fnmatchcase  # slow to import, rarely needed

    return any(
        pattern.lower() == "all" or fnmatchcase(os.uname().nodename.lower(), pattern.lower())
        for pattern in nodes
    )


def has_gpu() -> bool:
    """Whether a GPU of either maker is here, by its device files: also where this process may not
    see it.
    """
    from glob import glob  # slow to import, rarely needed

    return bool(glob("/dev/nvidia[0-9]*") or glob("/dev/kfd"))

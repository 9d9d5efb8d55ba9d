"""This node's name, whether it is selected, and whether it has a GPU."""

from __future__ import annotations

import os
from contextlib import suppress

from .row import Row

_given_name: str | None = None


def name_node(name: str | None) -> None:
    """Set this node's name for a process without a row, such as the driver."""
    global _given_name
    _given_name = name


def node_name(row: Row | None = None) -> str:
    """This node's name in paths: its host name.

    If several nodes share a host name, it is followed by the beginning of Ray's node id.

    Args:
        row: the row of this process's worker, which tells whether nodes share a host name.
    """
    host = os.uname().nodename
    node = _ray_node() if row is not None and row.get("node_ids") else ""
    return unique_name(host, node) if node else _given_name or host


def unique_name(host: str, node: str) -> str:
    """A unique name for a node that shares its host name."""
    return f"{host}-{node[:8]}"


def _ray_node() -> str:
    """Ray's id of this node, from the raylet's command line; empty if there is none.

    A worker's environment does not contain the id.
    """
    with suppress(OSError, KeyError), open(f"/proc/{os.environ['RAY_RAYLET_PID']}/cmdline") as file:
        for word in file.read().split("\0"):
            if word.startswith("--node_id="):
                return word.partition("=")[2]
    return ""


def selected(nodes: list[str]) -> bool:
    """Whether one of the host names or wildcards in `nodes` selects this node."""
    if [node.lower() for node in nodes] == ["all"]:
        return True
    from fnmatch import fnmatchcase  # slow to import, rarely needed

    return any(
        pattern.lower() == "all" or fnmatchcase(os.uname().nodename.lower(), pattern.lower())
        for pattern in nodes
    )


def has_gpu() -> bool:
    """Whether this node has device files of a GPU, even if the GPU is hidden from this process."""
    from glob import glob  # slow to import, rarely needed

    return bool(glob("/dev/nvidia[0-9]*") or glob("/dev/kfd"))

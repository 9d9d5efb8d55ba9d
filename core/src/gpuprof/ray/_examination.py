"""`gpuprof doctor --ray`: the doctor's checks on every node of a cluster."""

from __future__ import annotations

import ray

from gpuprof import _doctor
from gpuprof._config import Config
from gpuprof._types import Check
from gpuprof.ray._nodes import connected_nodes

_DEADLINE = 600.0


def examine_nodes(config: Config, address: str = "auto") -> list[tuple[str, list[Check]]]:
    """What `_doctor.examine` finds on each node that is alive, by a task that is pinned to it; the names of the nodes with it.

    Args:
        address: of the cluster, if this process is not connected to one.

    Raises:
        GpuprofError: there is none.
    """
    nodes = connected_nodes(address)
    # The limit as the cluster has it: it is set where each node is started, and the same for all.
    limit = float(ray._raylet.Config.worker_register_timeout_seconds())
    found = []
    for answer in nodes.ask(_doctor.examine, config, limit, timeout=_DEADLINE):
        if answer.result is not None:
            checks = answer.result
        else:
            words = f"{type(answer.error).__name__}: {answer.error}".splitlines()[0]
            checks = [Check("answers", False, words, "install gpuprof for the Python that Ray runs there, or mend the node")]
        found.append((answer.node, checks))
    return found

"""Ray clusters on this machine: one of one node that stays up, and others of several nodes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from gpuprof._plan.worker import PlannedWorker
from gpuprof._shim.node import name_node

from support.patient_ray import patient_start

RUNTIME_ENV = {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[1])}}
"""For `integration_workers`."""
SYSTEM = {
    "health_check_failure_threshold": 3,
    "health_check_period_ms": 500,
    # No idle workers, which cost time. `one_node` keeps them: it also runs tasks, and without idle
    # workers Ray may start a second process for a task.
    "prestart_worker_first_driver": False,
}


def one_node() -> Any:
    """Ray on this machine, for all tests of this process: it takes five seconds to start.

    It gives a worker the 60 s to register that it gives in production.
    """
    import ray

    if not ray.is_initialized():
        with patient_start():
            ray.init(
                num_cpus=4,
                include_dashboard=False,
                log_to_driver=False,
                _temp_dir=make(),
                _node_ip_address="127.0.0.1",
                runtime_env=RUNTIME_ENV,
            )
    return ray


def address() -> str:
    """The address of `one_node`, for a job that is a program of its own."""
    return str(one_node().get_runtime_context().gcs_address)


def logs() -> Path:
    """The directory where the processes of `one_node` log."""
    return Path(one_node()._private.worker._global_node.get_logs_dir_path())


@contextmanager
def one_trial_each() -> Iterator[None]:
    """Have Profilers try each command line of a profiler once on the Ray of `one_node`.

    A trial takes a second of a processor; tests/integration/test_preflight.py is about them.
    """
    from gpuprof.ray._preflight import Preflight

    def try_out(preflight: Preflight, worker_plan: PlannedWorker) -> None:
        worker, nodes = worker_plan.worker, preflight._planner.config.selection
        places = {worker.directory: "", worker.run: "", worker.group: ""}
        words = [_replaced(word, places) for word in worker_plan.command]
        key = (*words, worker.has_gpu, nodes(worker.group).nodes)
        if key not in _tried:
            original(preflight, worker_plan)
            _tried.add(key)

    original = Preflight.try_out
    with mock.patch.object(Preflight, "try_out", try_out):
        yield


_tried: set[tuple[object, ...]] = set()


def _replaced(text: str, places: Mapping[str, str]) -> str:
    for place, other in places.items():
        text = text.replace(place, other)
    return text


def end_node() -> None:
    """End the Ray of `one_node`, if it runs."""
    import ray

    ray.shutdown()


@contextmanager
def several_nodes(
    count: int,
    variables: Mapping[str, str] | None = None,
    unshared: Path | None = None,
) -> Iterator[Any]:
    """The cluster, with this process connected to it; the driver is on its first node.

    Args:
        count: how many.
        variables: of the environment of all but the first.
        unshared: a directory in whose place all but the first see one of their own; only root can.
    """
    import ray
    from ray.cluster_utils import Cluster

    end_node()
    cluster = Cluster()
    try:
        with patient_start():
            cluster.add_node(
                num_cpus=4, temp_dir=make(), _system_config=SYSTEM, include_dashboard=False
            )
            for number in range(1, count):
                with nullcontext() if unshared is None else _apart(unshared):
                    cluster.add_node(
                        num_cpus=4, resources={f"node{number}": 100}, env_vars=variables
                    )
        connect(cluster)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        name_node(None)  # as no driver of a job would go on to be somebody else


def _apart(directory: Path) -> Any:
    """Have the processes of Ray that start meanwhile see an empty directory in the place of one."""
    from ray._private import services

    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', directory]

    def popen(command: list[str], **options: Any) -> Any:
        return original([*mount, *command], **options)

    original = services.ConsolePopen
    return mock.patch.object(services, "ConsolePopen", popen)


def make() -> str:
    """Make a temporary directory for a cluster.

    It is in Ray's own, which goes when all processes have ended: some write after a shutdown.
    """
    return tempfile.mkdtemp(prefix="c", dir=os.path.join(os.environ["RAY_TMPDIR"], "ray"))


def connect(cluster: Any) -> None:
    """Connect this process to a cluster."""
    import ray

    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env=RUNTIME_ENV,
    )


def places(per_node: int) -> list[dict[str, Any]]:
    """The options of workers, `per_node` on each node; by default on the first."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    return [
        {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
        for node in alive
        for _ in range(per_node)
    ]

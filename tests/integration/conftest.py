"""A real Ray cluster on loopback, with a temporary directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cluster import make
from support.patient_ray import patient_start


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, started, for each file of tests: some have clusters of their own."""
    with one_node() as ray:
        yield ray


@pytest.fixture
def ray_without_idle_processes() -> Iterator[Any]:
    """A cluster that starts no spare processes, as in one that is fully used."""
    with one_node(prestart_worker_first_driver=False) as ray:
        yield ray


@contextmanager
def one_node(**settings: Any) -> Iterator[Any]:
    """Ray on this machine. It gives a worker the 60 s to register that it gives in production.

    Args:
        settings: of Ray's system.
    """
    import ray

    try:
        with patient_start():
            ray.init(
                num_cpus=4,
                include_dashboard=False,
                log_to_driver=False,
                _temp_dir=make(),
                _node_ip_address="127.0.0.1",
                # for integration_workers
                runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[1])}},
                _system_config=settings,
            )
        yield ray
    finally:
        ray.shutdown()

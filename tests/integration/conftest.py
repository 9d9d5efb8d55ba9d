"""A real Ray cluster on loopback, with a temporary directory of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, started, for each file of tests: some have clusters of their own.

    Its workers are told to give up soon, so that a broken command fails the test and does not hang it.
    """
    import ray

    directory = tempfile.mkdtemp(prefix="gpr", dir="/tmp")  # short: Ray puts sockets below it
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=directory,
        _node_ip_address="127.0.0.1",
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}},  # for integration_workers
        # Idle workers in advance would be for nothing: each actor here has an environment of its own.
        _system_config={"worker_register_timeout_seconds": 10, "prestart_worker_first_driver": False},
    )
    yield ray
    ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)

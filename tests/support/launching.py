"""How the integration tests start workers: as the README does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from gpuprof.ray import Profiler

from support.integration_workers import Worker


def config(directory: Path, **more: Any) -> Mapping[str, Any]:
    """A configuration that captures steps 2 and 5 of one group and raises on faults."""
    selected = {
        "worker_groups": ["ActorGroup"],
        "steps": [2, 5],
        "print_trees": "none",
        "on_error": "raise",
    }
    return {"backend": "nsight", "output_dir": str(directory), **selected, **more}


def start(profiler: Profiler, group: str, rank: int, actor: type = Worker, **options: Any) -> Any:
    """Start an actor as a worker of the run."""
    remote: Any = ray.remote(actor)
    return profiler.start(
        lambda options: remote.options(**options).remote(),
        group=group,
        rank=rank,
        num_cpus=0,
        **options,
    )

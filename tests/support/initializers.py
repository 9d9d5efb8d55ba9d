"""A framework that makes its workers in an actor of its own, as NeMo-RL does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from support.integration_workers import Worker


class Initializer:
    """Makes the worker, and holds it: with its maker an actor ends."""

    def create_worker(
        self, begin: str, before: str, decorated: Mapping[str, Any], **extra_options: Any
    ) -> Any:
        """Make it.

        Args:
            begin: lines of Python at the beginning.
            before: lines of Python before the worker is made.
            decorated: the options of the worker's class, which lie below `extra_options`.
        """
        exec(begin, {"extra_options": extra_options})
        options = merged(decorated, extra_options)
        exec(before, {"options": options})
        self._worker = ray.remote(Worker).options(num_cpus=0, **options).remote()
        return self._worker


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, those in `above` winning at every level."""
    both = dict(below)
    for key, value in above.items():
        both[key] = (
            merged(both[key], value)
            if isinstance(value, dict) and isinstance(both.get(key), dict)
            else value
        )
    return both

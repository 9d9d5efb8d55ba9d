"""A second actor of one group and rank: in the place of one that has died, or by mistake."""

from __future__ import annotations

import time
from typing import Any

import ray

from gpuprof.errors import ConfigError

_GRACE = 2.0
"""Seconds that an actor has to die: after `ray.kill` it can answer for a moment."""


def refuse(group: str, rank: int, first: Any) -> None:
    """Refuse it while the first one lives: which of them is the worker would be left to chance.

    Args:
        first: the actor that was added before, or `None`.

    Raises:
        ConfigError: it lives.
    """
    if first is not None and not _has_died(first):
        raise ConfigError([f"{group}-{rank}: an actor of this group and rank was added before, and lives"])


def _has_died(actor: Any) -> bool:
    until = time.monotonic() + _GRACE
    while (left := until - time.monotonic()) > 0:
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=left)
            time.sleep(0.1)
        except ray.exceptions.ActorUnavailableError:
            return False  # it is restarted
        except ray.exceptions.RayActorError:
            return True
        except ray.exceptions.RayError:
            return False  # it is busy
    return False

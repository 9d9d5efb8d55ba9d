"""Workers that come when they should not: a second one of a group and rank while the first lives, or one after the run's end."""

from __future__ import annotations

import time
from typing import Any

import ray

from gpuprof._log import log
from gpuprof._receipt import Receipt
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


def too_late(receipt: Receipt | None, worker: str) -> bool:
    """Whether the run has ended, which is said if it was one that profiles: the worker then runs as if there were no gpuprof.

    Args:
        receipt: of the run, once it ends.
        worker: its name.
    """
    if receipt is not None and receipt.directory is not None:
        log().warning("%s: is not profiled: the run has ended; use it inside `with Profiler(...)`, or before finalize", worker)
    return receipt is not None

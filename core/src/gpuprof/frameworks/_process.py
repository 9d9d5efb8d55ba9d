"""The role of this process in a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gpuprof._session.public import VARIABLE, session

_ENABLED = "GPUPROF_ENABLED"


def is_planned() -> bool:
    """Whether a run has started this process as a worker; unlike the others, starts no session."""
    return VARIABLE in os.environ


def is_recorded() -> bool:
    """Whether this process is one of a run's: a worker, or a child process of one."""
    return session() is not None


def is_worker() -> bool:
    """Whether this process is a worker of a run, even of one that could not profile.

    The framework's own profiler then stays off.
    """
    this_session = session()
    return gave_up_here() or (this_session is not None and not this_session.child)


def without_us(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Change a runtime environment so that neither the process nor its workers try to profile."""
    variables = {**(runtime_env.get("env_vars") or {}), _ENABLED: "false"}
    return {**runtime_env, "env_vars": variables}


def gave_up_here() -> bool:
    """Whether the parent of this process could not profile, and switched profiling off for it."""
    return os.environ.get(_ENABLED) == "false"

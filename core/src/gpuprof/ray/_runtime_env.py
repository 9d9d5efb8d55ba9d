"""What `.options()` needs so that an actor runs behind the shim, merged with the runtime environment that it has."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any

from gpuprof import _shim
from gpuprof.errors import ConfigError

_ENVIRONMENT_MAKERS = ("pip", "uv", "conda")
_OTHER_WRAPPERS = ("nsight", "_nsight", "rocprof_sys", "_rocprof_sys", "image_uri", "container")


def interpreter(actor_env: Mapping[str, Any], job_env: Mapping[str, Any]) -> list[str]:
    """The command that would start the worker's Python without gpuprof.

    A `py_executable` that is given; else ``python`` where Ray activates an environment first; else this process's own.
    """
    for environment in (actor_env, job_env):
        if environment.get("py_executable"):
            return shlex.split(environment["py_executable"])
    if any(environment.get(maker) for environment in (actor_env, job_env) for maker in _ENVIRONMENT_MAKERS):
        return ["python"]
    return [sys.executable]


def merge(runtime_env: Mapping[str, Any], variables: Mapping[str, str], wrapped: bool, path: str) -> dict[str, Any]:
    """`runtime_env` with our variables, and with the shim in front of the interpreter if `wrapped`.

    Raises:
        ConfigError: it already has one of our variables, or wraps the worker in another way.
    """
    merged = dict(runtime_env)
    given = dict(merged.get("env_vars") or {})
    taken = sorted(set(given) & set(variables))
    if taken:
        raise ConfigError([f"{path}.env_vars.{taken[0]}: {given[taken[0]]!r} is not valid; gpuprof sets this variable itself"])
    merged["env_vars"] = {**given, **variables}
    if wrapped:
        for key in _OTHER_WRAPPERS:
            if merged.get(key):
                raise ConfigError(
                    [f"{path}.{key}: {merged[key]!r} is not valid together with gpuprof: both replace the worker's command"]
                )
        merged["py_executable"] = shlex.join([sys.executable, "-S", "-E", _shim.__file__])
    return merged

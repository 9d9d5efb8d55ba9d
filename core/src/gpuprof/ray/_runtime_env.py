"""The runtime environment that puts the shim in front of an actor."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from gpuprof._shim import PROGRAM
from gpuprof._shim.row import VARIABLE, decode
from gpuprof.errors import ConfigError

_ENVIRONMENT_MAKERS = ("pip", "uv", "conda")
_PROFILERS = ("nsight", "_nsight", "rocprof_sys", "_rocprof_sys")
_OTHER_WRAPPERS = (*_PROFILERS, "image_uri", "container")

_NAME = "gpuprof-shim"
# The driver's paths may not exist on the node. So the script uses the Python of the node's Ray,
# from the raylet's command line; else the driver's Python, else one on PATH. It uses the shim at
# the driver's path, else that Python's gpuprof's. Without a shim the worker runs unwrapped.
_START_SHIM = r"""
command_line=/proc/$RAY_RAYLET_PID/cmdline
{ raylet=$(tr "\0" "\n" <"$command_line" | sed -n "s/^--python_worker_command=\([^ ]*\) .*/\1/p")
} 2>/dev/null
for python in "$raylet" "$1" python3 python; do command -v "$python" >/dev/null && break; done
[ -e "$2" ] && shim=$2 || shim=$("$python" -c "import gpuprof._shim; print(gpuprof._shim.PROGRAM)")
shift 2
[ -e "$shim" ] && exec "$python" -S -E "$shim" "$@"
echo "gpuprof: $(uname -n): not installed for $python; the worker runs without a profiler" >&2
exec """.lstrip()


def interpreter(actor_env: Mapping[str, Any], job_env: Mapping[str, Any]) -> list[str]:
    """The command that would start the worker's Python without gpuprof.

    This is `py_executable`, if given; else ``python``, if Ray activates an environment first. An
    empty list stands for the Python in which Ray runs on the worker's node.
    """
    for environment in (actor_env, job_env):
        command = shlex.split(environment.get("py_executable") or "")
        # in a controller that is itself a profiled worker, the job's command is gpuprof's own
        if command and _NAME not in command:
            return command
    if any(
        environment.get(maker)
        for environment in (actor_env, job_env)
        for maker in _ENVIRONMENT_MAKERS
    ):
        return ["python"]
    return []


def merge(
    actor_env: Mapping[str, Any],
    job_env: Mapping[str, Any],
    variables: Mapping[str, str],
    is_wrapped: bool,
    path: str,
) -> dict[str, Any]:
    """Add gpuprof's variables to `actor_env`, and put the shim before Python if `is_wrapped`.

    Args:
        job_env: the job's runtime environment. The worker inherits the keys that its own runtime
            environment does not set.
        path: the name of `actor_env` in messages.

    Raises:
        ConfigError: `actor_env` has one of gpuprof's variables; or with `is_wrapped`, one of the
            environments wraps the worker in another way.
    """
    result = dict(actor_env)
    env_vars = dict(result.get("env_vars") or {})
    conflicts = sorted(set(env_vars) & set(variables))
    if conflicts:
        raise ConfigError(
            f"{path}.env_vars.{conflicts[0]}: {env_vars[conflicts[0]]!r} is not valid; "
            "gpuprof sets this variable itself"
        )
    result["env_vars"] = {**env_vars, **variables}
    if is_wrapped:
        for where, environment in ((path, actor_env), (f"the job's {path}", job_env)):
            for key in _OTHER_WRAPPERS:
                if environment.get(key):
                    problem = (
                        f"{environment[key]!r} is not valid together with gpuprof: both "
                        "replace the worker's command"
                    )
                    raise ConfigError(f"{where}.{key}: {problem}")
        result["py_executable"] = _start_shim(interpreter(actor_env, job_env))
    return result


def without_profilers(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """A runtime environment without Ray's own profilers.

    >>> without_profilers({"_nsight": "default", "env_vars": {}})
    {'env_vars': {}}
    """
    return {key: value for key, value in runtime_env.items() if key not in _PROFILERS}


def _start_shim(command: list[str]) -> str:
    """The shell command that runs the shim, or `command` on a node without gpuprof."""
    script = _START_SHIM + (shlex.join(command) or '"$python"') + ' "$@"'
    return shlex.join(["sh", "-c", script, _NAME, sys.executable, PROGRAM])


def wrapped() -> bool:
    """Whether gpuprof has put a profiler in front of this process or its parent.

    The profiler also records what a wrapped process starts by `subprocess` or `multiprocessing`, so
    do not wrap that again. An actor or a task that a wrapped worker starts runs unwrapped, unless
    it gets options of its own.

    >>> wrapped()
    False
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return False
    try:
        row = decode(value)
    except ValueError:
        return False
    # Only the shim sets the role before the worker starts.
    return row.get("role") == "owner" and bool(row.get("profiled")) and not row.get("unwrapped")

"""Run as a script: which packages each hook of the launcher's side imports.

In a process that has imported what a launcher has, and neither pytest nor the kit.

_imports.py MODULE CLASS OPTIONS
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
from contextlib import suppress
from typing import Any

import gpuprof._plan.planner  # noqa: F401
from gpuprof._config.structure import structure
from gpuprof.backend import loading
from gpuprof.backend.types import Command, Tool, Window, Worker

HOOKS = ("probe", "missing_tool", "render_command", "inject_env", "expected_files", "plan_notes")
"""Hooks that run in the launcher, also where no worker is profiled."""


def main(module: str, name: str, section: str) -> None:
    """Print, as JSON, the packages that each hook imports beside the backend's own."""
    found_in: object = importlib.import_module(module)
    backend: Any = functools.reduce(getattr, name.split("."), found_in)
    options = structure(json.loads(section), backend.Options, "options")
    hooks = loading.manager(backend(options)).hook
    windows = (Window(1, 1, 2), Window(2, 3, 4))
    arguments = {
        "worker": Worker("run", "Kit", 0, "node", "1", "/gpuprof/run/node", windows),
        "command": Command(("{interpreter}",), ("worker.py",)),
        "tool": Tool("{tool}"),
        "windows": windows,
    }
    packages_by_hook: dict[str, list[str]] = {}
    for hook_name in HOOKS:
        hook = getattr(hooks, hook_name)
        modules = {*sys.modules}
        with suppress(Exception):  # other checks are about that
            hook(**{argument: arguments[argument] for argument in hook.spec.argnames})
        packages = {name.partition(".")[0] for name in {*sys.modules} - modules}
        own = {module.partition(".")[0], "gpuprof"}
        # those with an underscore are parts of others
        packages_by_hook[hook_name] = sorted(name for name in packages - own if name[0] != "_")
    json.dump(packages_by_hook, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Records all ranks of Lightning's DDP, where the first process starts the other ranks."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuprof._shim.row import VARIABLE, decode, encode
from gpuprof.frameworks import after_import, guarded, replace, say

_PACKAGES = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")


def install() -> None:
    """Record the ranks that this process starts through Lightning, if any."""
    for package in _PACKAGES:
        after_import(f"{package}.strategies.launchers.subprocess_script", _follow)


def _follow(module: ModuleType) -> None:
    def following(original: Callable[..., Any]) -> Callable[..., Any]:
        def _call_children_scripts(self: Any) -> Any:
            before = dict(os.environ)
            variables = guarded("Lightning: its ranks", lambda: _variables(self)) or {}
            os.environ.update(variables)
            try:
                return original(self)
            finally:
                for name in variables:
                    if name in before:
                        os.environ[name] = before[name]
                    else:
                        del os.environ[name]

        return _call_children_scripts

    replace(module._SubprocessScriptLauncher, "_call_children_scripts", following)


def _variables(launcher: Any) -> dict[str, str]:
    """The variables with which the other ranks of this node record themselves."""
    from gpuprof._launch import at_start

    value = os.environ.get(VARIABLE)
    if value is None:
        return {}
    row = decode(value)
    if row["profiled"] or launcher.num_nodes > 1:
        say(
            "Lightning: only the first rank of a node is recorded; for all of them, type "
            "`gpuprof run … -- torchrun …`",
            "the job goes on",
        )
        return {}
    row["rank_variable"], row["print_tree"] = "LOCAL_RANK", False
    path = at_start.path(os.environ.get("PYTHONPATH", ""))
    return {VARIABLE: encode(row), "PYTHONPATH": path}

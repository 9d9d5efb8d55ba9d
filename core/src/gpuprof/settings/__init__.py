"""The names that readers of a framework's profiling settings import, such as verl's or RLinf's.

A reader is a module that the entry point ``gpuprof.systems`` names: a pure function from the
framework's settings to gpuprof's, which ``--from NAME`` and `system` choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from gpuprof._config import sources, systems
from gpuprof._config.schema import merge
from gpuprof._config.selection import Integers
from gpuprof._config.sources import find, parse_value, parse_yaml
from gpuprof._config.structure import Invalid
from gpuprof._config.systems import Reader, Translation, nothing_selected
from gpuprof.settings._nsys_output import Output, take_output, take_output_with_directory

__all__ = [
    "Integers",
    "Invalid",
    "Output",
    "Reader",
    "Translation",
    "find",
    "merge",
    "nothing_selected",
    "parse_value",
    "parse_yaml",
    "preset",
    "read",
    "take_output",
    "take_output_with_directory",
]


def read(system: str, settings: Mapping[str, Any]) -> Translation:
    """Translate the settings of another system into a configuration of gpuprof.

    Args:
        system: such as ``rlinf``, ``verl``, ``nemo-rl``; its plugin has to be installed.
        settings: the system's whole configuration, which may be OmegaConf's; for ``nemo-rl`` the
            environment.

    Raises:
        ConfigError: with every invalid setting and its full path.
        PluginError: there is no plugin that reads them.

    >>> environ = {"NRL_NSYS_WORKER_PATTERNS": "*policy*", "NRL_NSYS_PROFILE_STEP_RANGE": "3:5"}
    >>> read("nemo-rl", environ).settings["steps"]
    ['3:5']
    """
    return systems.read(system, settings)


def preset(name: str) -> dict[str, Any] | None:
    """One of gpuprof's presets for Hydra, such as ``profile/light``, or ``None``.

    >>> preset("profile/light")["backend"]
    'nsight'
    """
    file = resources.files("gpuprof.conf").joinpath(f"{name.strip('/')}.yaml")
    if not file.is_file():
        return None
    settings: dict[str, Any] = sources.parse_yaml(file.read_text(encoding="utf-8"))
    return settings
